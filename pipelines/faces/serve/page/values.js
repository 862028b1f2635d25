// What values look like, and how they are sorted. Storage has integer nanoseconds; people also get us, ms and s.
"use strict";

const DATES_FROM = 1e17; // ns: 1973 as a time since 1970; no duration is as long

function durationText(ns) {
  const size = Math.abs(ns);
  for (const [unit, length] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) {
    if (size >= length) return `${(ns / length).toLocaleString("en", { maximumFractionDigits: 2 })} ${unit}`;
  }
  return "";
}

// Text for people beside a column of nanoseconds: a duration, or a date.
function timeText(name, value) {
  if (!/_ns$/.test(name) || value === null || isNaN(Number(value))) return "";
  const ns = Number(value);
  if (Math.abs(ns) < DATES_FROM) return durationText(ns);
  const date = new Date(ns / 1e6);
  return isNaN(date) ? "" : `${date.toISOString().replace("T", " ").replace("Z", "")} UTC`;
}

// NULL first, then by value: integers beyond what a number holds come as text.
function compareNumbers(a, b) {
  if (a === null || b === null) return (a === null ? 0 : 1) - (b === null ? 0 : 1);
  if (typeof a === "number" && typeof b === "number") return a - b;
  try {
    const [x, y] = [BigInt(a), BigInt(b)];
    return x < y ? -1 : x > y ? 1 : 0;
  } catch {
    const [x, y] = [Number(a), Number(b)]; // NaN last
    return isNaN(x) ? (isNaN(y) ? 0 : 1) : isNaN(y) ? -1 : x - y;
  }
}

function compareTexts(a, b) {
  if (a === null || b === null) return (a === null ? 0 : 1) - (b === null ? 0 : 1);
  const [x, y] = [String(a), String(b)];
  return x < y ? -1 : x > y ? 1 : 0;
}

// An element with text in it, never markup: names in traces are foreign.
function element(kind, text, className) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function cellElement(column, value, links) {
  const made = element("span");
  if (value === null) {
    made.append(element("span", "NULL", "null"));
    made.title = "not measured";
    return made;
  }
  const time = column.is_number ? timeText(column.name, value) : "";
  if (links && (column.name === "trace_id" || column.name === "capture_id")) {
    const link = element("a", value);
    link.href = `/report/${encodeURIComponent(value)}`;
    link.target = "_blank";
    link.rel = "noopener";
    link.title = "Report";
    made.append(link);
    return made;
  }
  made.append(document.createTextNode(String(value)));
  if (time) {
    made.append(element("span", time, "human"));
    made.title = `${value} ns`;
  } else {
    made.title = String(value).slice(0, 2000);
  }
  return made;
}
