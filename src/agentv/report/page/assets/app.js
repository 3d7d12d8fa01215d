/** Puts the page together: header, filter, table and case, and what keys and the address do. */

import { caseMarkdown, showCase, stateMark, trialName } from "./case.js";
import { comparisonHeader } from "./compare.js";
import { copyText, el, fill } from "./dom.js";
import { ABSENT, countText, durationText, moneyText, PASS, scoreText, signedText, STATES } from "./format.js";
import { runHeader } from "./header.js";
import { helpDialog } from "./help.js";
import { VirtualList } from "./list.js";
import { BROKEN, FIXED, Model, ONLY_A, ONLY_B } from "./model.js";
import { describeTerm, parseQuery, rowFilter } from "./query.js";
import { readRoute, routeHash, routeRow, rowRoute, writeRoute } from "./route.js";
import { searchTexts } from "./search.js";

const SHOWN_EVALUATORS = 8;
const SHOWN_TRIALS = 12;
const PRINTED_ROWS = 300;
const WAIT_FOR_TYPING = 200;
const WAIT_FOR_REST = 40;
/** The columns of the table: name, title, and whether the largest comes first when it is sorted by. */
const COLUMNS = [
  ["worst", "verdict", false], ["id", "case", false], ["before", "A", false], ["score", "score", false], ["change", "change", false],
  ["", "evaluators", false], ["", "answer", false], ["duration", "time", true], ["cost", "cost", true],
];

/** The page of one run, or of two. `footer` is what it says at its end. */
export class App {
  constructor(model, root, footer) {
    this.model = model;
    this.footer = footer;
    this.root = root;
    this.route = {};
    this.row = -1;
    this.trial = undefined;
    this.view = new Uint32Array(0);
    this.search = { stopped: true };
    this.unsorted = 0;
    this.build();
    this.list = new VirtualList(this.rowsBox, (index) => this.drawRow(index), () => this.rowHeight());
    addEventListener("popstate", () => this.follow());
    addEventListener("hashchange", () => this.follow());
    addEventListener("keydown", (event) => this.onKey(event));
    addEventListener("beforeprint", () => this.preparePrint());
    this.follow();
  }

  build() {
    const { model } = this;
    this.header = this.makeHeader();
    this.input = el("input", { type: "search", id: "filter", placeholder: "filter: words, verdict:fail, score<0.5 …", autocomplete: "off", spellcheck: "false", "aria-describedby": "chips status", on: { input: () => this.onInput() } });
    this.chips = el("div", { class: "chips", id: "chips" });
    this.status = el("p", { class: "status", id: "status", role: "status" });
    this.rowsBox = el("div", { class: "rows", role: "rowgroup" });
    this.heads = COLUMNS.filter(([name]) => model.base || (name !== "before" && name !== "change")).map(([name, title, down]) => this.columnHead(name, title, down));
    this.table = el("div", { class: `table${model.base ? " compared" : ""}`, role: "table", "aria-label": "cases" },
      el("div", { class: "head", role: "rowgroup" }, el("div", { class: "row", role: "row" }, this.heads)), this.rowsBox);
    this.empty = el("p", { class: "empty", hidden: true });
    this.printed = el("div", { class: "printed" });
    this.bar = el("div", { class: "bar-top", role: "search" },
      el("div", { class: "filter-line" }, el("label", { for: "filter", class: "sr" }, "filter the cases"), this.input, this.status,
        el("button", { type: "button", class: "icon", title: "keys and filters (?)", "aria-label": "help", on: { click: () => this.help.showModal() } }, "?")), this.chips);
    this.main = el("main", null, el("h2", { class: "sr" }, "Cases"), this.bar, this.table, this.empty, this.printed);
    new ResizeObserver(() => this.table.style.setProperty("--bar", `${this.bar.offsetHeight}px`)).observe(this.bar);
    this.panel = el("section", { class: "case", "aria-labelledby": "case-title", hidden: true });
    this.help = helpDialog(Boolean(model.base));
    this.sizeColumns();
    fill(this.root, this.header, el("div", { class: "panes" }, this.main, this.panel), this.help,
      el("footer", null, this.footer, " ", el("kbd", null, "?"), " shows the keys."));
  }

  makeHeader() {
    const filterBy = (query) => this.setQuery(query, true);
    return this.model.base ? comparisonHeader(this.model, filterBy) : runHeader(this.model, filterBy);
  }

  sizeColumns() {
    const { model } = this;
    const widest = Math.min(SHOWN_EVALUATORS, new Set(model.runs.flatMap((run) => run.meta.evaluators)).size);
    this.table.style.setProperty("--evaluators", String(Math.max(widest, 4)));
    this.table.classList.toggle("no-evaluators", widest === 0);
    for (const [name, column] of [["no-duration", "rowDurations"], ["no-cost", "rowCosts"]]) this.table.classList.toggle(name, !model.run[column].some((value) => value >= 0));
  }

  // a run that grows

  /** Tells whether nobody has looked at a row yet: then rows may still be put into their order. */
  get isUntouched() {
    return scrollY === 0 && this.row < 0 && !this.main.contains(document.activeElement);
  }

  /**
   * Shows a model that has grown. The rows that are there stay where they are and new ones come after them, until
   * somebody sorts or filters, unless `sorts` is set. `changed` has a byte for each row: whether it has new results.
   */
  update(model, changed, sorts) {
    const before = this.model.count;
    this.model = model;
    this.replaceHeader();
    this.sizeColumns();
    if (sorts) this.filter();
    else this.extend(before);
    for (const [index] of [...this.list.shown]) if (changed[this.view[index]]) this.list.redraw(index);
    if (this.row < 0 && this.route.case !== undefined) this.open(routeRow(model, this.route), this.route.trial);
  }

  /** Puts new figures in the place of the old ones, without moving the table, the focus or what is unfolded. */
  replaceHeader() {
    const old = this.header, top = this.main.getBoundingClientRect().top;
    const focused = [...old.querySelectorAll("button, a, summary")].indexOf(document.activeElement);
    const unfolded = [...old.querySelectorAll("details")].map((each) => each.open);
    this.header = this.makeHeader();
    old.replaceWith(this.header);
    this.header.querySelectorAll("details").forEach((each, at) => { each.open = unfolded[at] ?? false; });
    if (focused >= 0) this.header.querySelectorAll("button, a, summary")[focused]?.focus({ preventScroll: true });
    const moved = this.main.getBoundingClientRect().top - top;
    if (moved && scrollY > 0) scrollBy(0, moved);
  }

  /** Adds the rows that fit and are not shown yet, after all others. */
  extend(before) {
    const { texts, rows } = this.select();
    const shown = new Uint8Array(this.model.count);
    for (const row of this.view) shown[row] = 1;
    const fresh = rows.filter((row) => !shown[row] && (!texts.length || row >= before));
    if (!texts.length || !fresh.length) return this.append(fresh);
    const { search } = this;
    searchTexts(this.model, texts, fresh, search, (found, share) => {
      if (share === 1 && search === this.search) this.append(fresh.filter((row) => found[row]));
    }).catch((error) => { this.status.textContent = `the search broke: ${error.message}`; });
  }

  append(fresh) {
    const view = new Uint32Array(this.view.length + fresh.length);
    view.set(this.view);
    view.set(fresh, this.view.length);
    this.view = view;
    this.unsorted += fresh.length;
    this.tellCount("");
    this.list.grow(view.length);
  }

  columnHead(name, title, descending) {
    const cell = el("div", { role: "columnheader", class: `cell c-${name || title}`, "data-sort": name });
    if (!name) return fill(cell, title);
    const shown = name === "score" && this.model.base ? "B" : title;
    return fill(cell, el("button", { type: "button", class: "sort", on: { click: () => this.sortBy(name, descending) } }, shown, el("span", { class: "arrow", "aria-hidden": "true" })));
  }

  // what is shown

  /** Shows what the address says. */
  follow() {
    const before = this.route;
    this.route = readRoute();
    if (before.q !== this.route.q || before.sort !== this.route.sort || before === this.route || !this.started) {
      this.started = true;
      if (document.activeElement !== this.input || this.input.value.trim() !== (this.route.q ?? "")) this.input.value = this.route.q ?? "";
      this.filter();
    }
    this.open(routeRow(this.model, this.route), this.route.trial);
  }

  go(change, push) {
    const next = { ...this.route, ...change };
    writeRoute(next, push);
    this.follow();
  }

  setQuery(query, moves) {
    this.input.value = query;
    this.go({ q: query || undefined, case: undefined, dataset: undefined, target: undefined, trial: undefined }, true);
    if (moves) this.bar.scrollIntoView({ block: "start" });
  }

  onInput() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.go({ q: this.input.value.trim() || undefined }, false), WAIT_FOR_TYPING);
  }

  sortBy(name, descending) {
    const [first, second] = descending ? [`-${name}`, name] : [name, `-${name}`];
    const current = this.route.sort ?? "worst";
    this.go({ sort: current === first ? second : current === second && name !== "worst" ? undefined : first }, false);
  }

  /** Finds the rows to show: by the index at once, by texts as they are read. */
  filter() {
    this.search.stopped = true;
    this.unsorted = 0;
    const { terms, texts, rows, sort } = this.select();
    for (const head of this.heads) {
      const own = head.dataset.sort === sort.replace("-", "") && head.dataset.sort !== "";
      head.setAttribute("aria-sort", own ? (sort.startsWith("-") ? "descending" : "ascending") : "none");
      if (!head.dataset.sort) head.removeAttribute("aria-sort");
    }
    this.showChips(terms);
    if (!texts.length) return this.showRows(rows, "");
    const signal = (this.search = { stopped: false });
    searchTexts(this.model, texts, rows, signal, (found, share) => {
      if (!signal.stopped) this.showRows(rows.filter((row) => found[row]), share < 1 ? `searching texts, ${Math.round(share * 100)}%` : "");
    }).catch((error) => { this.status.textContent = `the search broke: ${error.message}`; });
  }

  /** Returns what the address asks for: the terms, those of them that are texts, and the rows that fit the others. */
  select() {
    const terms = parseQuery(this.route.q ?? "");
    const sort = this.route.sort ?? "worst";
    const order = this.model.order(sort.replace("-", ""), sort.startsWith("-"));
    const rows = terms.length ? order.filter(rowFilter(this.model, terms)) : order;
    return { terms, texts: terms.filter((term) => term.kind === "text" && term.value), rows, sort };
  }

  showRows(rows, searching) {
    const same = rows.length === this.view.length && rows.every((row, at) => row === this.view[at]);
    this.view = rows;
    this.tellCount(searching);
    if (!same || !this.list.rowHeight) this.list.reset(rows.length);
  }

  tellCount(searching) {
    const rows = this.view, all = this.model.count;
    this.table.setAttribute("aria-rowcount", String(rows.length + 1));
    fill(this.status, [rows.length === all ? countText(all, "case") : `${rows.length.toLocaleString("en")} of ${countText(all, "case")}`, searching].filter(Boolean).join(", "),
      this.unsorted > 0 && [`, ${this.unsorted.toLocaleString("en")} new at the end `, el("button", { type: "button", class: "plain", on: { click: () => this.filter() } }, "sort them in")]);
    this.status.classList.toggle("busy", Boolean(searching));
    this.empty.hidden = rows.length > 0 || Boolean(searching);
    fill(this.empty, all ? ["No case fits. ", el("button", { type: "button", class: "plain", on: { click: () => this.setQuery("", false) } }, "Show all")] : "No case is in this report.");
  }

  showChips(terms) {
    fill(this.chips, terms.map((term, at) => el("button", { type: "button", class: `chip${term.problem ? " wrong" : ""}`, title: "remove", on: { click: () => {
      this.setQuery(terms.filter((_, other) => other !== at).map((other) => other.source).join(" "), false);
      this.input.focus();
    } } }, describeTerm(term), el("span", { "aria-hidden": "true" }, " ×"), el("span", { class: "sr" }, ", remove"))));
    this.chips.hidden = terms.length === 0;
  }

  // the table

  rowHeight() {
    return parseFloat(getComputedStyle(this.rowsBox).getPropertyValue("--row-height")) || 36;
  }

  drawRow(index) {
    const { model } = this, row = this.view[index], run = model.runOf(row);
    const link = el("a", { href: routeHash({ q: this.route.q, sort: this.route.sort, ...rowRoute(model, row) }), class: "id", dir: "auto", title: model.id(row) }, model.id(row) || "(no id)");
    const cell = (name, ...children) => el("div", { role: "cell", class: `cell c-${name}` }, children);
    const compared = Boolean(model.base);
    return el("div", { class: `row${row === this.row ? " open" : ""}`, role: "row", "aria-rowindex": String(index + 2), "aria-current": row === this.row ? "true" : null, on: { click: (event) => { if (!event.target.closest("a, button") && !String(getSelection())) this.go(this.toRow(row), true); } } },
      cell("worst", compared ? flipMark(model, row) : stateMark(run.rowStates[row])),
      cell("id", link, this.datasetHint(row)),
      compared && cell("before", this.scoreOf(model.base, row)),
      cell("score", compared ? this.scoreOf(model.run, row) : scoreBar(run, row)),
      compared && cell("change", changeBar(model.deltas[row])),
      cell("evaluators", evaluatorCells(run, row)),
      cell("answer", this.snippet(run, row, index)),
      cell("duration", durationText(run.rowDurations[row])),
      cell("cost", moneyText(run.rowCosts[row])));
  }

  datasetHint(row) {
    return this.model.run.meta.datasets.length > 1 ? el("span", { class: "hint" }, this.model.dataset(row)) : null;
  }

  scoreOf(run, row) {
    return run.rowStates[row] === ABSENT ? "–" : [stateMark(run.rowStates[row], false), ` ${scoreText(run.rowScores[row])}`];
  }

  /** Returns the line of the answer; if it is not at hand, it is loaded and put into the row then. */
  snippet(run, row, index) {
    const result = run.resultsOf(row)[0];
    const text = run.snippets.peek(result);
    if (text === undefined) {
      clearTimeout(this.loading);
      this.loading = setTimeout(() => this.loadSnippets(), WAIT_FOR_REST);
      return "";
    }
    return el("span", { dir: "auto" }, text);
  }

  /** Loads the answers' lines of the rows in sight, once scrolling rests. */
  async loadSnippets() {
    const places = [...this.list.shown.keys()].map((index) => {
      const run = this.model.runOf(this.view[index]), result = run.resultsOf(this.view[index])[0];
      return { index, row: this.view[index], run, result };
    }).filter(({ run, result }) => run.snippets.peek(result) === undefined);
    try {
      await Promise.all(places.map(({ run, result }) => run.snippets.lines(run.snippets.blockOf(result))));
    } catch {
      return; // the page says elsewhere that the results are gone
    }
    for (const { index, row } of places) if (this.view[index] === row) this.showSnippet(index, row);
  }

  /** Puts the line of an answer into its row, which stays the element that it is: somebody may be clicking on it. */
  showSnippet(index, row) {
    const cell = this.list.shown.get(index)?.querySelector(".c-answer");
    if (cell) fill(cell, this.snippet(this.model.runOf(row), row, index));
  }

  // a case

  toRow(row, trial) {
    return { case: undefined, dataset: undefined, target: undefined, trial: undefined, ...rowRoute(this.model, row, trial) };
  }

  open(row, trial) {
    if (row < 0 && this.route.case !== undefined) this.status.textContent = `there is no case ${this.route.case} here`;
    if (row === this.row && trial === this.trial) return;
    const moved = row !== this.row, before = this.row;
    this.row = row;
    this.trial = trial;
    const index = this.view.indexOf(row >= 0 ? row : before);
    const toggled = (row < 0) !== (before < 0);
    this.keepPlace(toggled ? index : -1, () => {
      document.body.classList.toggle("has-case", row >= 0);
      this.panel.hidden = row < 0;
      this.main.inert = row >= 0 && !matchMedia("(min-width: 1000px)").matches;
    });
    if (moved) this.list.redrawAll();
    if (row < 0) {
      document.title = document.title.replace(/^.* · /, "");
      this.list.shown.get(index)?.querySelector("a")?.focus({ preventScroll: true });
      return;
    }
    document.title = `${this.model.id(row)} · ${document.title.replace(/^.* · /, "")}`;
    if (index >= 0) this.list.reveal(index, this.bar.offsetHeight + 40);
    const actions = {
      close: () => this.close(),
      step: (by) => this.step(by),
      trial: (name) => this.go({ trial: String(name) }, false),
      place: index < 0 ? "not in this filter" : `${(index + 1).toLocaleString("en")} of ${this.view.length.toLocaleString("en")}`,
    };
    showCase(this.model, row, trial, this.panel, actions)
      .then(() => { if (moved) this.panel.querySelector("h1")?.focus({ preventScroll: true }); })
      .catch((error) => fill(this.panel, el("p", { class: "notice failed" }, `This case cannot be shown: ${error.message}`)));
  }

  close() {
    this.go({ case: undefined, dataset: undefined, target: undefined, trial: undefined }, true);
  }

  /** Changes the layout without moving a row under the reader's eyes. */
  keepPlace(index, change) {
    const top = () => this.rowsBox.getBoundingClientRect().top + index * this.list.rowHeight;
    const before = top();
    const visible = index >= 0 && before > -50 && before < innerHeight;
    change();
    this.list.reset();
    if (visible) scrollBy(0, top() - before);
    this.list.update();
  }

  /** Opens the next row (or the one before) that fits. It stops at the ends. */
  step(by, fits = () => true) {
    const from = this.view.indexOf(this.row);
    for (let index = from < 0 ? (by > 0 ? 0 : -1) : from + by; index >= 0 && index < this.view.length; index += by) {
      if (fits(this.view[index])) return this.go(this.toRow(this.view[index]), this.row < 0);
    }
  }

  /** Copies the case whose row is in focus as Markdown. */
  async copyFocused() {
    const found = [...this.list.shown].find(([, element]) => element.contains(document.activeElement));
    if (!found) return;
    const row = this.view[found[0]], run = this.model.runOf(row);
    const result = await run.result(run.resultsOf(row)[0]);
    this.status.textContent = (await copyText(caseMarkdown(result))) ? `copied ${result.eval_id}` : "could not copy";
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.help.open) return;
    if (event.target.closest?.("input, textarea, select")) {
      if (event.key === "Escape") this.input.blur();
      if (event.key === "Enter") { this.typing && clearTimeout(this.typing); this.go({ q: this.input.value.trim() || undefined }, false); }
      return;
    }
    const missed = this.model.base ? (row) => this.model.flips[row] === BROKEN : (row) => this.model.state(row) !== PASS;
    const action = {
      j: () => this.step(1), k: () => this.step(-1), n: () => this.step(1, missed), p: () => this.step(-1, missed),
      "/": () => { if (this.main.inert) this.close(); this.input.focus(); this.input.select(); }, "?": () => this.help.showModal(),
      c: () => (this.row >= 0 ? this.panel.querySelector('[title^="copy"]')?.click() : this.copyFocused()),
      Escape: () => (this.row >= 0 ? this.close() : this.route.q && this.setQuery("", false)),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  /** Paper has no virtual rows: what did not pass is written out. */
  preparePrint() {
    const rows = [...this.model.order("worst", false)].filter((row) => (this.model.base ? this.model.flips[row] <= FIXED : this.model.state(row) !== PASS));
    fill(this.printed, el("h2", null, this.model.base ? "Cases that changed sides" : "Cases that did not pass"),
      el("table", null, rows.slice(0, PRINTED_ROWS).map((row) => el("tr", null, el("td", null, stateMark(this.model.state(row))), el("td", null, this.model.id(row)), el("td", null, scoreText(this.model.score(row)))))),
      rows.length > PRINTED_ROWS && el("p", null, `and ${rows.length - PRINTED_ROWS} more`));
  }
}

/** Returns the score as a number on a bar; the scores of trials are dots on it. */
function scoreBar(run, row) {
  const results = run.resultsOf(row), score = run.rowScores[row];
  const key = STATES[run.rowStates[row]]?.key ?? "absent";
  const dots = results.length > 1 && [...results].slice(0, SHOWN_TRIALS).map((number, at) =>
    el("i", { class: `dot ${STATES[run.state(number)].key}`, style: { left: `${run.scores[number] * 100}%` }, title: `trial ${trialName(run, number, at)}: ${scoreText(run.scores[number])}` }));
  return [el("span", { class: "score-number" }, scoreText(score)),
    el("span", { class: "score-bar", "aria-hidden": "true" }, !dots && el("span", { class: `score-fill ${key}`, style: { width: `${score * 100}%` } }), dots),
    results.length > 1 && el("span", { class: "sr" }, `, ${results.length} trials`)];
}

function changeBar(delta) {
  if (Number.isNaN(delta)) return el("span", { class: "quiet" }, "–");
  const half = Math.min(1, Math.abs(delta)) * 50;
  return [el("span", { class: "change-number" }, signedText(delta)),
    el("span", { class: "change-bar", "aria-hidden": "true" }, el("span", { class: delta < 0 ? "fail" : "pass", style: { left: `${delta < 0 ? 50 - half : 50}%`, width: `${half}%` } }))];
}

/** Returns a small cell for each evaluator, always at the same place. */
function evaluatorCells(run, row) {
  const found = run.evaluatorsOf(row), names = run.meta.evaluators;
  const numbers = names.length <= SHOWN_EVALUATORS ? names.keys() : [...found.keys()].slice(0, SHOWN_EVALUATORS);
  return [...numbers].map((number) => {
    const part = found.get(number);
    if (!part) return el("span", { class: "evaluator-cell none" });
    const state = part.failed ? STATES[0] : STATES[part.state];
    return el("span", { class: `evaluator-cell ${state.key}`, title: `${names[number]}: ${scoreText(part.sum / part.count)} ${part.failed ? "failed" : state.word}` },
      el("span", { "aria-hidden": "true" }, state.sign), el("span", { class: "sr" }, `${names[number]} ${state.word} `));
  });
}

function flipMark(model, row) {
  const flip = model.flips[row];
  if (flip === BROKEN) return el("span", { class: "mark fail" }, el("span", { "aria-hidden": "true" }, "▼"), el("span", { class: "word" }, " broken"));
  if (flip === FIXED) return el("span", { class: "mark pass" }, el("span", { "aria-hidden": "true" }, "▲"), el("span", { class: "word" }, " fixed"));
  if (flip === ONLY_A || flip === ONLY_B) return el("span", { class: "mark absent" }, el("span", { "aria-hidden": "true" }, flip === ONLY_A ? "A" : "B"), el("span", { class: "word" }, " only"));
  return stateMark(model.state(row));
}
