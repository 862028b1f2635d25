// Opens the console's page in a stub of a browser and prints what became of it, as JSON: `node opened_page.js FOLDER '#sql=…'`.
const vm = require("vm");
const fs = require("fs");
const [folder, hash] = process.argv.slice(2);
const elements = {};

function element(id) {
  return (elements[id] ||= {
    value: "",
    dataset: {},
    classList: { toggle() {} },
    addEventListener() {},
    setAttribute() {},
    append() {},
    replaceChildren() {},
    querySelectorAll: () => [],
  });
}

const requests = [];
const question = { topic: "gpu", name: "n", question: "q?", words: "", reading: "", limits: ["rank"] };
const answers = {
  "/contents": { lake: "lake", version: "1", layers: [], questions: [question], has_reports: true },
  "/why": { id: "a", title: "t", sentence: "s", rest: "", causes: [{ names: "n" }], caveats: [] },
};
const page = vm.createContext({
  ...{ URLSearchParams, AbortController, setInterval, clearInterval, performance },
  document: {
    getElementById: element,
    createElement: () => element(Symbol("new")),
    createTextNode: (text) => text,
    querySelectorAll: () => [],
    body: element("body"),
  },
  location: { hash },
  history: { replaceState() {} },
  addEventListener() {},
  matchMedia: () => ({ matches: false }),
  fetch: async (path) => {
    requests.push(path);
    return { ok: true, json: async () => answers[path] };
  },
});
for (const name of ["values.js", "console.js"]) vm.runInContext(fs.readFileSync(`${folder}/${name}`, "utf8"), page);
setTimeout(() => {
  const { value: sql } = element("sql");
  console.log(JSON.stringify({ sql, status: element("status").textContent, ready: element("body").dataset.ready, requests }));
}, 100);
