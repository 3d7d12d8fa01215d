/** The list of runs: what ran, how good it was, and which two to compare. */

import { ask } from "./ask.js";
import { el, fill } from "./dom.js";
import { countText, moneyText, percentText, timeText } from "./format.js";
import { meanText, trend } from "./trend.js";

const POLL = 2000, POLL_HIDDEN = 10_000, POLL_COUNTING = 50;
const SHOWN = 300;
const STATUS = { running: ["●", "running"], done: ["✓", "done"], interrupted: ["!", "interrupted"], failed: ["✗", "failed"], killed: ["!", "killed"] };

export class RunsPage {
  constructor(root) {
    this.root = root;
    this.runs = [];
    this.drawn = new Map();
    this.all = false;
    this.build();
    addEventListener("hashchange", () => this.draw());
    addEventListener("resize", () => this.draw());
    addEventListener("keydown", (event) => this.onKey(event));
  }

  build() {
    this.title = el("h1", null, "Runs");
    this.about = el("p", { class: "kicker" });
    this.plot = el("div");
    this.input = el("input", { type: "search", id: "filter", placeholder: "filter: target, eval file, commit, status …", autocomplete: "off", spellcheck: "false", on: { input: () => this.go({ q: this.input.value.trim() }) } });
    this.status = el("p", { class: "status", id: "status", role: "status" });
    this.compare = el("button", { type: "button", class: "compare", disabled: true, on: { click: () => this.open() } }, "Compare");
    this.body = el("tbody");
    const head = (text, name = text) => el("th", { scope: "col", class: `r-${name}` }, text);
    this.table = el("table", { class: "runs", "aria-label": "runs" },
      el("thead", null, el("tr", null, el("th", { scope: "col", class: "r-choose" }, el("span", { class: "sr" }, "compare")), head("when"), head("run"), head("targets"), head("commit"), head("cases"), head("mean (95%)", "mean"), head("pass"), head("cost"), head("status"))), this.body);
    this.more = el("div");
    fill(this.root, el("header", { class: "summary" }, this.about, this.title, this.plot),
      el("div", { class: "panes" }, el("main", null, el("h2", { class: "sr" }, "All runs"),
        el("div", { class: "bar-top", role: "search" }, el("div", { class: "filter-line" }, el("label", { for: "filter", class: "sr" }, "filter the runs"), this.input, this.status, this.compare)),
        this.table, this.more)),
      el("footer", null, "Served by agentv to this machine only. ", el("kbd", null, "/"), " filters; choose two runs to compare them."));
  }

  /** Reads the list again and again. */
  async follow() {
    for (;;) {
      let wait = POLL;
      try {
        const { runs, is_counting: counting, folders } = await (await ask("/api/runs")).json();
        this.take(runs, folders);
        wait = counting ? POLL_COUNTING : document.hidden ? POLL_HIDDEN : POLL;
      } catch (error) {
        this.status.textContent = error.message;
      }
      document.documentElement.dataset.ready = "yes";
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  take(runs, folders) {
    const text = JSON.stringify(runs);
    if (text === this.text) return;
    Object.assign(this, { text, runs, folders });
    this.draw();
  }

  get route() {
    const values = new URLSearchParams(location.hash.slice(1));
    return { q: values.get("q") ?? "", chosen: (values.get("chosen") ?? "").split(",").filter(Boolean) };
  }

  go(change) {
    const { q, chosen } = { ...this.route, ...change };
    const values = new URLSearchParams({ ...(q && { q }), ...(chosen.length && { chosen: chosen.join(",") }) });
    history.replaceState(null, "", `#${values}`);
    this.draw();
  }

  draw() {
    const { q, chosen } = this.route;
    if (document.activeElement !== this.input) this.input.value = q;
    const words = q.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (run) => words.every((word) => [run.name, run.run_id, run.status, run.commit, ...(run.targets ?? []), ...(run.evals ?? [])].some((text) => text?.toLowerCase().includes(word)));
    const found = words.length ? this.runs.filter(fits) : this.runs;
    const shown = this.all ? found : found.slice(0, SHOWN);
    this.sayTitle(found);
    fill(this.plot, trend(found, this.plot.clientWidth));
    const focused = document.activeElement?.closest?.(".runs [data-run]")?.dataset.run, kind = document.activeElement?.tagName;
    this.drawRows(shown, chosen);
    for (const [name, known] of [["commit", (run) => run.commit], ["cost", (run) => Number.isFinite(run.cost)], ["status", (run) => run.status]]) this.table.classList.toggle(`no-${name}`, !found.some(known));
    if (focused) [...this.body.querySelectorAll(kind)].find((each) => each.closest("[data-run]").dataset.run === focused)?.focus({ preventScroll: true });
    fill(this.more, found.length > shown.length && el("button", { type: "button", class: "more", on: { click: () => { this.all = true; this.draw(); } } }, `show all ${found.length}`),
      !found.length && el("p", { class: "empty" }, this.runs.length ? "No run fits." : "There are no runs yet."));
    this.status.textContent = found.length === this.runs.length ? countText(found.length, "run") : `${found.length} of ${countText(this.runs.length, "run")}`;
    this.compare.disabled = chosen.length !== 2;
    this.compare.textContent = chosen.length === 1 ? "Choose one more" : chosen.length === 2 ? "Compare these two" : "Choose two to compare";
  }

  /** Draws the rows that have changed. The others stay the elements that they are: somebody may be clicking on one. */
  drawRows(shown, chosen) {
    const before = this.drawn;
    this.drawn = new Map(shown.map((run) => {
      const key = JSON.stringify([run, chosen.includes(run.id)]);
      return [key, before.get(key) ?? this.row(run, chosen)];
    }));
    const rows = new Set(this.drawn.values());
    for (const row of [...this.body.children]) if (!rows.has(row)) row.remove();
    let next = this.body.firstChild;
    for (const row of rows) {
      if (row === next) next = next.nextSibling;
      else this.body.insertBefore(row, next);
    }
  }

  sayTitle(found) {
    const running = found.filter((run) => run.status === "running").length;
    const last = found.find((run) => Number.isFinite(run.mean));
    fill(this.about, "Results in ", el("b", null, (this.folders ?? []).join(", ")));
    fill(this.title, el("strong", null, countText(found.length, "run")), el("span", null, [running && `, ${running} in progress`, last && `, the latest mean ${meanText(last)}`].filter(Boolean).join(""), "."));
  }

  row(run, chosen) {
    const cell = (name, ...children) => el("td", { class: `r-${name}` }, children);
    const [sign, word] = STATUS[run.status] ?? ["", run.status ?? ""];
    const name = run.evals?.length ? run.evals.slice(0, 3).join(", ") : run.name;
    const box = run.id && el("input", { type: "checkbox", checked: chosen.includes(run.id), "aria-label": `compare ${name}, ${timeText(run.started ?? "")}`, on: { change: (event) => this.choose(run.id, event.target.checked) } });
    return el("tr", { "data-run": run.id ?? run.run_id, class: run.status === "running" ? "running" : null },
      cell("choose", box),
      cell("when", run.started ? timeText(run.started) : "–"),
      el("th", { scope: "row", class: "r-run" }, run.id ? el("a", { href: `/run/${run.id}`, title: run.file }, name) : el("span", null, name), el("span", { class: "hint" }, run.note || (name === run.name ? "" : run.name)), run.problem && el("span", { class: "hint problem" }, `✗ ${run.problem}`)),
      cell("targets", (run.targets ?? []).join(", ")),
      cell("commit", run.commit && el("code", null, run.commit)),
      cell("cases", Number.isFinite(run.cases) ? progress(run) : "–"),
      cell("mean", Number.isFinite(run.mean) && [el("span", { class: "mean-bar", "aria-hidden": "true" }, el("span", { style: { width: `${run.mean * 100}%` } })), meanText(run)]),
      cell("pass", Number.isFinite(run.pass_rate) ? percentText(run.pass_rate) : ""),
      cell("cost", Number.isFinite(run.cost) ? moneyText(run.cost) : ""),
      cell("status", el("span", { class: `run-status ${run.status ?? ""}` }, el("span", { "aria-hidden": "true" }, sign), ` ${word}`)));
  }

  choose(id, isChosen) {
    const others = this.route.chosen.filter((each) => each !== id);
    this.go({ chosen: isChosen ? [...others.slice(-1), id] : others });
  }

  /** Opens the comparison of the two that are chosen: the newer is compared with the older. */
  open() {
    const { chosen } = this.route;
    const order = this.runs.filter((run) => chosen.includes(run.id)).map((run) => run.id).reverse();
    if (order.length === 2) location.href = `/compare/${order[0]}/${order[1]}`;
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("input[type=search]")) {
      if (event.key === "Escape") this.input.blur();
      return;
    }
    if (event.key === "/") { event.preventDefault(); this.input.focus(); this.input.select(); }
    if (event.key === "Escape") this.go({ q: "", chosen: [] });
  }
}

function progress(run) {
  if (run.status === "running" && run.planned > run.cases) return `${run.cases.toLocaleString("en")} of ${run.planned.toLocaleString("en")}`;
  return run.cases.toLocaleString("en");
}
