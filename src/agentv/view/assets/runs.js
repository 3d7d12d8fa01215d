// @ts-check
/** The list of runs with their figures. Two of them can be compared. */

/**
 * @import { Run, RunList } from "../contract"
 * @import { Child } from "./dom.js"
 */

import { askJson } from "./ask.js";
import {
  button,
  decorative,
  el,
  elWith,
  fill,
  filterInput,
  markReady,
  pause,
  srOnly,
} from "./dom.js";
import { countText, isNumber, moneyText, numberText, percentText, timeText } from "./format.js";
import { meanText, trend } from "./trend.js";

/** The delay before the list is read again, in milliseconds. */
const POLL = 2000;
const POLL_HIDDEN = 10_000;
const POLL_COUNTING = 50;
const SHOWN_RUNS = 300;
const SHOWN_EVALS = 3;
const COMPARED_RUNS = 2;

/** @type {Record<string, string>} */
const STATUS_SIGNS = { running: "●", done: "✓", interrupted: "!", failed: "✗", killed: "!" };

const COLUMNS = ["when", "run", "targets", "commit", "cases", "mean", "pass", "cost", "status"];

/**
 * The state of the list, as stored in the URL.
 * @typedef {object} ListRoute
 * @property {string} q the filter
 * @property {string[]} chosen the ids of the runs that are chosen
 */

export class RunsPage {
  /** @param {HTMLElement} root */
  constructor(root) {
    /** @type {Run[]} */
    this.runs = [];
    /** @type {string[]} */
    this.folders = [];
    /** The runs that are shown, as JSON. */
    this.json = "";
    /** Why the last attempt to read the list failed. */
    this.problem = "";
    /** @type {Map<string, HTMLElement>} the rows that are shown, by what is in them */
    this.drawn = new Map();
    this.showsAll = false;
    this.title = el("h1", "Runs");
    this.about = el("p.kicker");
    this.plot = el("div");
    const { input, label } = filterInput("filter the runs", "target, eval file, commit, status", {
      on: { input: () => this.#go({ q: input.value.trim() }) },
    });
    this.input = input;
    this.status = elWith("p.status", { id: "status", role: "status" });
    const compareProps = { class: "compare", disabled: true };
    this.compare = button(compareProps, () => this.#openComparison(), "Compare");
    this.body = el("tbody");
    this.table = elWith("table.runs", { "aria-label": "runs" }, tableHead(), this.body);
    this.more = el("div");
    this.#build(root, label);
    addEventListener("hashchange", () => this.#draw());
    addEventListener("resize", () => this.#draw());
    addEventListener("keydown", (event) => this.#onKey(event));
  }

  /**
   * @param {HTMLElement} root
   * @param {HTMLElement} label of the filter
   */
  #build(root, label) {
    const line = el("div.filter-line", label, this.input, this.status, this.compare);
    const main = el(
      "main",
      el("h2.sr", "All runs"),
      elWith("div.bar-top", { role: "search" }, line),
      this.table,
      this.more,
    );
    const keys = [el("kbd", "/"), " to filter. Select two runs to compare them."];
    fill(
      root,
      el("header.summary", this.about, this.title, this.plot),
      el("div.panes", main),
      el("footer", "Served by agentv on this machine only. ", keys),
    );
  }

  // reading

  /** Read the list in a loop. */
  async follow() {
    for (;;) {
      const wait = await this.#read();
      markReady();
      await pause(wait);
    }
  }

  /** Read the list once and return the delay before the next read. */
  async #read() {
    try {
      /** @type {RunList} */
      const list = await askJson("/api/runs");
      const hadProblem = this.problem !== "";
      this.problem = "";
      this.#show(list);
      if (hadProblem) this.#draw();
      if (list.is_counting) return POLL_COUNTING;
      return document.hidden ? POLL_HIDDEN : POLL;
    } catch (error) {
      this.problem = /** @type {Error} */ (error).message;
      this.#draw();
      return POLL;
    }
  }

  /** @param {RunList} list */
  #show({ runs, folders }) {
    const json = JSON.stringify(runs);
    if (json === this.json) return;
    this.json = json;
    this.runs = runs;
    this.folders = folders;
    this.#draw();
  }

  // the address

  /** @returns {ListRoute} */
  get route() {
    const values = new URLSearchParams(location.hash.slice(1));
    const chosen = values.get("chosen") ?? "";
    return { q: values.get("q") ?? "", chosen: chosen.split(",").filter(Boolean) };
  }

  /** @param {Partial<ListRoute>} change */
  #go(change) {
    const { q, chosen } = { ...this.route, ...change };
    const values = new URLSearchParams();
    if (q) values.set("q", q);
    if (chosen.length > 0) values.set("chosen", chosen.join(","));
    history.replaceState(null, "", `#${values}`);
    this.#draw();
  }

  // drawing

  #draw() {
    const { q, chosen } = this.route;
    if (document.activeElement !== this.input) this.input.value = q;
    const found = this.#filter(q);
    const shown = this.showsAll ? found : found.slice(0, SHOWN_RUNS);
    if (this.json !== "") this.#drawTitle(found); // before that, the list is not known
    fill(this.plot, trend(found, this.plot.clientWidth));
    this.#keepFocus(() => this.#drawRows(shown, chosen));
    this.#hideEmptyColumns(found);
    this.#drawMore(found.length, shown.length);
    const all = countText(this.runs.length, "run");
    const isWhole = found.length === this.runs.length;
    this.status.textContent = isWhole ? all : `${found.length} of ${all}`;
    if (this.problem) this.status.textContent = this.problem;
    this.compare.disabled = chosen.length !== COMPARED_RUNS;
    this.compare.textContent = compareLabel(chosen.length);
  }

  /**
   * Return the runs that match all words.
   * @param {string} query
   */
  #filter(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length === 0) return this.runs;
    return this.runs.filter((run) => {
      const { name, run_id, status, commit, targets = [], evals = [] } = run;
      const texts = [name, run_id, status, commit, ...targets, ...evals];
      const lower = texts.map((text) => text?.toLowerCase() ?? "");
      return words.every((word) => lower.some((text) => text.includes(word)));
    });
  }

  /** @param {Run[]} found */
  #drawTitle(found) {
    const running = found.filter((run) => run.status === "running").length;
    const latest = found.find((run) => isNumber(run.mean));
    const facts = [];
    if (running > 0) facts.push(`, ${running} in progress`);
    if (latest) facts.push(`, latest mean ${meanText(latest)}`);
    fill(this.about, "Results in ", el("b", this.folders.join(", ")));
    const count = el("strong", countText(found.length, "run"));
    fill(this.title, count, el("span", facts.join(""), "."));
  }

  /**
   * Draw rows and keep the focus on the element that had it.
   * @param {() => void} draw
   */
  #keepFocus(draw) {
    const focused = document.activeElement;
    /** @type {HTMLElement | null | undefined} */
    const row = focused?.closest(".runs [data-run]");
    const run = row?.dataset.run;
    draw();
    if (!focused || !run) return;
    /** @type {NodeListOf<HTMLElement>} */
    const candidates = this.body.querySelectorAll(focused.tagName);
    for (const each of candidates) {
      /** @type {HTMLElement | null} */
      const owner = each.closest("[data-run]");
      if (owner?.dataset.run !== run) continue;
      each.focus({ preventScroll: true });
      return;
    }
  }

  /**
   * Redraw changed rows. The elements of other rows are kept: the user may be clicking on one.
   * @param {Run[]} shown
   * @param {string[]} chosen
   */
  #drawRows(shown, chosen) {
    const drawnBefore = this.drawn;
    this.drawn = new Map();
    for (const run of shown) {
      const isChosen = run.id ? chosen.includes(run.id) : false;
      const key = JSON.stringify([run, isChosen]);
      this.drawn.set(key, drawnBefore.get(key) ?? this.#drawRow(run, isChosen));
    }
    const rows = new Set(this.drawn.values());
    for (const row of [...this.body.children]) {
      if (!rows.has(/** @type {HTMLElement} */ (row))) row.remove();
    }
    let next = this.body.firstChild;
    for (const row of rows) {
      if (row === next) next = next.nextSibling;
      else this.body.insertBefore(row, next);
    }
  }

  /**
   * @param {Run} run
   * @param {boolean} isChosen
   */
  #drawRow(run, isChosen) {
    const name = runName(run);
    return elWith(
      "tr",
      { "data-run": run.id ?? run.run_id, class: run.status === "running" ? "running" : null },
      cell("choose", this.#checkbox(run, name, isChosen)),
      cell("when", run.started ? timeText(run.started) : "–"),
      elWith("th", { scope: "row", class: "r-run" }, nameContent(run, name)),
      cell("targets", (run.targets ?? []).join(", ")),
      cell("commit", run.commit && el("code", run.commit)),
      cell("cases", caseCount(run)),
      cell("mean", meanContent(run)),
      cell("pass", isNumber(run.pass_rate) ? percentText(run.pass_rate) : ""),
      cell("cost", isNumber(run.cost) ? moneyText(run.cost) : ""),
      cell("status", statusContent(run)),
    );
  }

  /**
   * @param {Run} run
   * @param {string} name
   * @param {boolean} isChosen
   */
  #checkbox({ id, started }, name, isChosen) {
    if (!id) return null;
    const box = elWith("input", {
      type: "checkbox",
      checked: isChosen,
      "aria-label": `compare ${name}, ${timeText(started ?? "")}`,
      on: { change: () => this.#choose(id, box.checked) },
    });
    return box;
  }

  /** @param {Run[]} found */
  #hideEmptyColumns(found) {
    const { classList } = this.table;
    classList.toggle("no-commit", !found.some((run) => run.commit));
    classList.toggle("no-cost", !found.some((run) => isNumber(run.cost)));
    classList.toggle("no-status", !found.some((run) => run.status));
  }

  /**
   * @param {number} found
   * @param {number} shown
   */
  #drawMore(found, shown) {
    const showAll = () => {
      this.showsAll = true;
      this.#draw();
    };
    let emptyText = this.runs.length > 0 ? "No matching runs." : "No runs yet.";
    if (this.json === "") emptyText = ""; // the list is not known yet
    fill(
      this.more,
      found > shown && button("more", showAll, `show all ${found}`),
      found === 0 && el("p.empty", emptyText),
    );
  }

  // comparing

  /**
   * Select or deselect a run. Only the last two selected runs stay selected.
   * @param {string} id
   * @param {boolean} isChosen
   */
  #choose(id, isChosen) {
    const others = this.route.chosen.filter((each) => each !== id);
    this.#go({ chosen: isChosen ? [...others.slice(-1), id] : others });
  }

  /** Open the comparison of the two chosen runs: the newer with the older. */
  #openComparison() {
    const { chosen } = this.route;
    const found = this.runs.filter((run) => run.id && chosen.includes(run.id));
    if (found.length !== COMPARED_RUNS) return;
    const [newer, older] = found;
    location.href = `/compare/${older.id}/${newer.id}`;
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = /** @type {Element} */ (event.target);
    const isTyping = target.closest?.("input[type=search]");
    if (isTyping) {
      if (event.key === "Escape") this.input.blur();
      return;
    }
    if (event.key === "/") {
      event.preventDefault();
      this.input.focus();
      this.input.select();
    }
    if (event.key === "Escape") this.#go({ q: "", chosen: [] });
  }
}

// parts of the table

function tableHead() {
  const choose = elWith("th", { scope: "col", class: "r-choose" }, srOnly("compare"));
  const heads = COLUMNS.map((name) => {
    const title = name === "mean" ? "mean (95%)" : name;
    return elWith("th", { scope: "col", class: `r-${name}` }, title);
  });
  return el("thead", el("tr", choose, heads));
}

/**
 * @param {string} name
 * @param {Child} content
 */
function cell(name, content) {
  return el(`td.r-${name}`, content);
}

/** @param {Run} run */
function runName({ name, evals = [] }) {
  return evals.length > 0 ? evals.slice(0, SHOWN_EVALS).join(", ") : name;
}

/**
 * @param {Run} run
 * @param {string} name
 * @returns {Child[]}
 */
function nameContent(run, name) {
  const link = run.id
    ? elWith("a", { href: `/run/${run.id}`, title: run.file }, name)
    : el("span", name);
  const hint = run.note || (name === run.name ? "" : run.name);
  return [link, el("span.hint", hint), run.problem && el("span.hint.problem", `✗ ${run.problem}`)];
}

/** @param {Run} run */
function caseCount({ status, cases, planned }) {
  if (!isNumber(cases)) return "–";
  const isInProgress = status === "running" && isNumber(planned) && planned > cases;
  return isInProgress ? `${numberText(cases)} of ${numberText(planned)}` : numberText(cases);
}

/** @param {Run} run */
function meanContent(run) {
  if (!isNumber(run.mean)) return null;
  const fill = elWith("span", { style: { width: `${run.mean * 100}%` } });
  return [decorative("span.mean-bar", fill), meanText(run)];
}

/** @param {Run} run */
function statusContent({ status = "" }) {
  const sign = STATUS_SIGNS[status] ?? "";
  return elWith("span", { class: `run-status ${status}` }, decorative("span", sign), ` ${status}`);
}

/** @param {number} count */
function compareLabel(count) {
  if (count === 1) return "Select one more run";
  return count === COMPARED_RUNS ? "Compare these two" : "Select two runs to compare";
}
