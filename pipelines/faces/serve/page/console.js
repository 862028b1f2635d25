// The page: what is on the left, and a query with its answer.
"use strict";

const at = (id) => document.getElementById(id);
let contents = null; // tables, questions, limits
let running = null; // the AbortController of the request that runs
let grid = null;

// ---- requests

async function send(path, body, signal) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  if (answer.ok) return answer;
  const reply = await answer.text();
  let text = reply;
  try {
    const { error, hint } = JSON.parse(reply);
    text = [error, hint].filter(Boolean).join("\n");
  } catch {
    // a sentence
  }
  throw new Error(text || `the server answered ${answer.status}`);
}

// Runs one request at a time; Cancel ends it, and the server stops its query.
async function whileRunning(doing, work) {
  if (running) running.abort();
  const own = (running = new AbortController());
  const start = performance.now();
  const tick = () => (at("status").textContent = `${doing} … ${((performance.now() - start) / 1000).toFixed(0)} s`);
  tick();
  const clock = setInterval(tick, 1000);
  at("cancel").disabled = false;
  showError("");
  try {
    await work(own.signal);
  } catch (error) {
    if (running === own) {
      at("status").textContent = "";
      if (error.name === "AbortError") at("status").textContent = "cancelled";
      else showError(error instanceof TypeError ? `the connection ended: ${error.message}` : error.message);
    }
  } finally {
    clearInterval(clock);
    if (running === own) {
      running = null;
      at("cancel").disabled = true;
    }
  }
}

function showError(text) {
  at("error").textContent = text;
  at("error").hidden = !text;
}

// ---- queries

function runQuery() {
  const sql = at("sql").value;
  history.replaceState(null, "", `#sql=${encodeURIComponent(sql)}`);
  at("why").hidden = true;
  return whileRunning("running", async (signal) => {
    clearGrid();
    const result = await (await send("/query", { sql }, signal)).json();
    showRows(result, sql);
  });
}

function download(format) {
  const body = { sql: at("sql").value, format, for_spreadsheet: at("spreadsheet").checked };
  return whileRunning(`${format} is being made`, async (signal) => {
    const answer = await send("/download", body, signal);
    const blob = await answer.blob();
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `answer.${format}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    at("status").textContent = `${link.download}: ${blob.size.toLocaleString("en")} bytes`;
    const caveats = JSON.parse(answer.headers.get("Tracelake-Caveats") || "[]");
    at("caveats").querySelectorAll(".file").forEach((item) => item.remove()); // of an earlier download
    at("caveats").append(...caveats.map((text) => element("li", `${link.download}: ${text}`, "file")));
    at("caveats").hidden = !at("caveats").children.length;
  });
}

function clearGrid() {
  if (grid) grid.destroy();
  grid = null;
  at("grid").hidden = true;
  at("caveats").hidden = true;
  at("caveats").replaceChildren();
}

function showRows(result, sql) {
  clearGrid();
  at("caveats").replaceChildren(...result.caveats.map((text) => element("li", text)));
  at("caveats").hidden = !result.caveats.length;
  const n = result.rows.length;
  const counted = result.cut || `${n.toLocaleString("en")} row${n === 1 ? "" : "s"}`;
  const more = result.cut ? " (a header sorts these only; CSV and Parquet have all)" : "";
  at("status").textContent = `${counted}${more} · ${result.seconds} s`;
  const meanings = meaningsIn(sql);
  at("grid").hidden = false;
  grid = new Tabulator("#grid", {
    data: result.rows.map((row) => Object.fromEntries(row.map((value, i) => [`c${i}`, value]))),
    columns: result.columns.map((column, i) => gridColumn(column, i, meanings)),
    layout: "fitData",
    placeholder: element("span", "no rows"),
    height: "100%",
    nestedFieldSeparator: false,
  });
}

function gridColumn(column, i, meanings) {
  const meaning = meanings.get(column.name);
  return {
    field: `c${i}`,
    title: "",
    titleFormatter: () => {
      const title = element("span", column.name);
      title.title = [column.type, meaning].filter(Boolean).join(": ");
      return title;
    },
    formatter: (cell) => cellElement(column, cell.getValue(), contents.has_reports),
    hozAlign: column.is_number ? "right" : "left",
    headerHozAlign: column.is_number ? "right" : "left",
    sorter: column.is_number ? compareNumbers : compareTexts,
    headerSortTristate: true,
    maxInitialWidth: Math.min(420, innerWidth / 2),
  };
}

// The meanings of columns of the tables that a query names.
function meaningsIn(sql) {
  const words = new Set(sql.toLowerCase().match(/[a-z_0-9]+/g) || []);
  const tables = contents.layers.flatMap((layer) => layer.tables).filter((table) => words.has(table.name));
  return new Map(tables.flatMap((table) => table.columns.map((column) => [column.name, column.doc])));
}

// ---- what the page opens on: why the newest capture or trace takes as long as it does

async function showWhy() {
  const shown = at("why");
  shown.replaceChildren(element("p", "why the newest trace takes as long as it does …", "soft"));
  shown.hidden = false;
  try {
    shown.replaceChildren(...whyElements(await (await send("/why", {})).json()));
  } catch (error) {
    shown.replaceChildren(element("p", error.message, "error"));
  }
}

function whyElements(answer) {
  const title = element("h2");
  title.append(cellElement({ name: "trace_id" }, answer.id, contents.has_reports), ` ${answer.title}`);
  const causes = element("ol");
  causes.append(...answer.causes.map(causeElement));
  const caveats = element("ul", undefined, "soft");
  caveats.append(...answer.caveats.map((text) => element("li", text)));
  const parts = [title, caveats, element("p", answer.sentence, "sentence"), causes, element("p", answer.rest, "soft")];
  return parts.filter((part) => part.textContent);
}

function causeElement(cause) {
  const made = element("li", `${cause.share}  ${cause.description}`);
  if (cause.doubt) made.append(element("p", `but ${cause.doubt}`));
  made.append(element("p", cause.names, "soft"), element("p", cause.advice));
  if (cause.command) made.append(element("code", cause.command));
  return made;
}

// ---- the left side

function showTables() {
  at("tables").replaceChildren(
    ...contents.layers.map(({ layer, tables }) => {
      const group = element("details", undefined, "layer");
      group.open = layer !== "rules";
      group.append(element("summary", layer), ...tables.map(tableElement));
      return group;
    })
  );
}

function tableElement(table) {
  const made = element("details", undefined, "table");
  const words = [table.name, table.doc, ...table.columns.flatMap((column) => [column.name, column.doc])];
  made.dataset.words = words.join(" ").toLowerCase();
  const summary = element("summary", table.name);
  summary.title = table.doc;
  made.append(summary);
  made.addEventListener("toggle", () => {
    if (!made.open || made.children.length > 1) return;
    const take = element("button", "Query", "small");
    take.type = "button";
    take.addEventListener("click", () => {
      ask(`SELECT *\nFROM ${table.name}`);
    });
    const columns = element("dl");
    for (const column of table.columns) {
      const name = element("dt", column.name);
      name.append(element("span", column.type, "type"));
      columns.append(name, element("dd", column.doc));
    }
    made.append(element("p", table.doc), take, columns);
  });
  return made;
}

function showQuestions() {
  const topics = [...new Set(contents.questions.map((question) => question.topic))];
  at("questions").replaceChildren(
    ...topics.map((topic) => {
      const group = element("details", undefined, "layer");
      group.append(element("summary", topic));
      group.append(...contents.questions.filter((question) => question.topic === topic).map(questionElement));
      return group;
    })
  );
}

function questionElement(question) {
  const made = element("details", undefined, "question");
  made.dataset.words = [question.name, question.question, question.words, question.reading].join(" ").toLowerCase();
  const form = element("form");
  for (const name of [...question.limits, "top"]) {
    const label = element("label", `${name} `);
    const input = element("input");
    input.name = name;
    input.autocomplete = "off";
    if (name === "rank" || name === "top") Object.assign(input, { type: "number", min: 0, step: 1 });
    if (name === "top") input.value = "20";
    label.append(input);
    form.append(label);
  }
  form.append(element("button", "Ask", "small"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const values = { name: question.name };
    for (const input of form.querySelectorAll("input")) {
      if (input.value !== "") values[input.name] = input.type === "number" ? Number(input.value) : input.value;
    }
    try {
      const { sql } = await (await send("/question", values)).json();
      ask(sql, `${question.question} ${question.reading}`);
    } catch (error) {
      showError(error.message);
    }
  });
  made.append(element("summary", question.question), form);
  return made;
}

function ask(sql, reading = "") {
  at("sql").value = sql;
  at("reading").textContent = reading;
  at("reading").hidden = !reading;
  if (matchMedia("(max-width: 760px)").matches) showSide(false);
  runQuery();
}

function search() {
  const wanted = at("search").value.trim().toLowerCase();
  for (const item of document.querySelectorAll("#side [data-words]")) item.hidden = !item.dataset.words.includes(wanted);
  for (const group of document.querySelectorAll("#side .layer")) {
    group.hidden = !group.querySelector("[data-words]:not([hidden])");
    if (wanted) group.open = true;
  }
}

function showSide(isShown) {
  document.body.classList.toggle("narrow", !isShown);
  at("toggle").setAttribute("aria-expanded", String(isShown));
}

// ---- start

// A link fills in its query and does not run it: who opens a link has not read it yet.
function takeFragment() {
  const linked = new URLSearchParams(location.hash.slice(1)).get("sql");
  if (linked === null || linked === at("sql").value) return;
  at("sql").value = linked;
  at("status").textContent = "the query is from the link; Run answers it";
}

async function start() {
  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    at("reading").hidden = true;
    runQuery();
  });
  at("sql").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("ask").requestSubmit();
  });
  at("cancel").addEventListener("click", () => running && running.abort());
  at("csv").addEventListener("click", () => download("csv"));
  at("parquet").addEventListener("click", () => download("parquet"));
  at("link").addEventListener("click", async () => {
    history.replaceState(null, "", `#sql=${encodeURIComponent(at("sql").value)}`);
    try {
      await navigator.clipboard.writeText(location.href);
      at("status").textContent = "the link is in the clipboard";
    } catch {
      at("status").textContent = "the link is in the address bar";
    }
  });
  at("search").addEventListener("input", search);
  at("toggle").addEventListener("click", () => showSide(document.body.classList.contains("narrow")));
  if (matchMedia("(max-width: 760px)").matches) showSide(false);
  addEventListener("hashchange", takeFragment);
  try {
    const answer = await fetch("/contents");
    if (!answer.ok) throw new Error(await answer.text());
    contents = await answer.json();
  } catch (error) {
    showError(`the tables cannot be listed: ${error.message}`);
    return;
  }
  at("lake").textContent = contents.lake;
  at("lake").title = `tracelake ${contents.version}`;
  document.title = `${contents.lake}: tracelake`;
  showQuestions();
  showTables();
  at("sql").value = "SELECT trace_id, job, rank, status, n_events, path\nFROM traces\nORDER BY job, rank";
  takeFragment();
  document.body.dataset.ready = "true";
  if (!running) showWhy();
}

start();
