// @ts-check
/** The table of cases. Each column has a name and a function that draws its cells. */

/**
 * @import { Child } from "./dom.js"
 * @import { EvaluatorCell, Model, Run } from "./model.js"
 */

import { trialName } from "./case.js";
import { button, decorative, el, elWith, fill, srOnly } from "./dom.js";
import { durationText, moneyText, scoreText, signedText } from "./format.js";
import { VirtualList } from "./list.js";
import { flipMark, stateMark, stateSign } from "./marks.js";
import { ABSENT, ABSENT_STATE, ERROR, STATES } from "./states.js";

/**
 * The data from which the cells of a row are drawn.
 * @typedef {object} RowContext
 * @property {Model} model
 * @property {Run} run whose results are shown
 * @property {number} row
 * @property {string} address of the case
 * @property {Child} answer the first line of the answer
 */

/**
 * A column of the table.
 * @typedef {object} Column
 * @property {string} name of the class of its cells, and of the order by this column
 * @property {string} [title] if it is not the name
 * @property {string} [comparedTitle] in a comparison, if it is another
 * @property {boolean} [isUnsortable]
 * @property {boolean} [isLargestFirst] when sorted by this column for the first time
 * @property {boolean} [isOnlyCompared] whether only comparisons have it
 * @property {(context: RowContext) => Child} draw
 */

/**
 * @typedef {object} TableActions
 * @property {(column: string, isLargestFirst: boolean) => void} sortBy
 * @property {(row: number) => void} open
 * @property {(row: number) => string} addressOf
 */

const SHOWN_EVALUATORS = 8;
const LEAST_EVALUATOR_CELLS = 4;
const SHOWN_TRIALS = 12;
const DEFAULT_ROW_HEIGHT = 36;
/** Delay after scrolling before answers are loaded, in milliseconds. */
const REST_MILLISECONDS = 40;

/** @type {Column[]} */
const COLUMNS = [
  {
    name: "worst",
    title: "verdict",
    draw: ({ model, run, row }) =>
      model.base ? flipMark(model, row) : stateMark(run.cases.states[row]),
  },
  {
    name: "id",
    title: "case",
    draw: ({ model, row, address }) => [idLink(model, row, address), datasetHint(model, row)],
  },
  {
    name: "before",
    title: "A",
    isOnlyCompared: true,
    draw: ({ model, row }) => model.base && scoreSign(model.base, row),
  },
  {
    name: "score",
    comparedTitle: "B",
    draw: ({ model, run, row }) => (model.base ? scoreSign(model.run, row) : scoreBar(run, row)),
  },
  {
    name: "change",
    isOnlyCompared: true,
    draw: ({ model, row }) => changeBar(model.deltas[row]),
  },
  {
    name: "evaluators",
    isUnsortable: true,
    draw: ({ run, row }) => evaluatorCells(run, row),
  },
  {
    name: "answer",
    isUnsortable: true,
    draw: ({ answer }) => answer,
  },
  {
    name: "duration",
    title: "time",
    isLargestFirst: true,
    draw: ({ run, row }) => durationText(run.cases.durations[row]),
  },
  {
    name: "cost",
    isLargestFirst: true,
    draw: ({ run, row }) => moneyText(run.cases.costs[row]),
  },
];

/** Shows rows of a model. A row has an index in the table and a number in the model. */
export class CaseTable {
  /**
   * @param {Model} model
   * @param {TableActions} actions
   */
  constructor(model, actions) {
    this.model = model;
    this.actions = actions;
    /** @type {Uint32Array} the rows that are shown, in order */
    this.rows = new Uint32Array(0);
    /** The row of the open case, or -1. */
    this.openRow = -1;
    const isComparison = model.base !== null;
    this.columns = COLUMNS.filter((column) => isComparison || !column.isOnlyCompared);
    this.heads = this.columns.map((column) => this.#drawHead(column, isComparison));
    this.body = elWith("div.rows", { role: "rowgroup" });
    const headRow = elWith("div.row", { role: "row" }, this.heads);
    this.element = elWith(
      "div",
      { class: `table${isComparison ? " compared" : ""}`, role: "table", "aria-label": "cases" },
      elWith("div.head", { role: "rowgroup" }, headRow),
      this.body,
    );
    this.list = new VirtualList(
      this.body,
      (index) => this.#drawRow(index),
      () => this.#readRowHeight(),
    );
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.loading = undefined;
    this.#sizeColumns();
  }

  /**
   * Switch to the rows of another model.
   * @param {Model} model
   */
  setModel(model) {
    this.model = model;
    this.#sizeColumns();
  }

  #sizeColumns() {
    const { runs, run } = this.model;
    const names = new Set(runs.flatMap((each) => each.meta.evaluators));
    const cells = Math.min(SHOWN_EVALUATORS, names.size);
    const { classList, style } = this.element;
    style.setProperty("--evaluators", String(Math.max(cells, LEAST_EVALUATOR_CELLS)));
    classList.toggle("no-evaluators", cells === 0);
    classList.toggle("no-duration", !run.cases.durations.some((value) => value >= 0));
    classList.toggle("no-cost", !run.cases.costs.some((value) => value >= 0));
  }

  // heads

  /**
   * @param {Column} column
   * @param {boolean} isComparison
   */
  #drawHead(column, isComparison) {
    const { name, title = name, comparedTitle = title, isLargestFirst = false } = column;
    const props = { role: "columnheader", class: `cell c-${name}` };
    if (column.isUnsortable) return elWith("div", { ...props, "data-sort": "" }, title);
    const shown = isComparison ? comparedTitle : title;
    const arrow = decorative("span.arrow");
    const sort = () => this.actions.sortBy(name, isLargestFirst);
    return elWith("div", { ...props, "data-sort": name }, button("sort", sort, shown, arrow));
  }

  /**
   * Mark the column that the rows are sorted by.
   * @param {string} column
   * @param {boolean} isDescending
   */
  markSorted(column, isDescending) {
    const direction = isDescending ? "descending" : "ascending";
    for (const head of this.heads) {
      const name = head.dataset.sort;
      if (name) head.setAttribute("aria-sort", name === column ? direction : "none");
    }
  }

  // rows

  /**
   * Show these rows.
   * @param {Uint32Array} rows
   */
  show(rows) {
    const isSame =
      rows.length === this.rows.length && rows.every((row, at) => row === this.rows[at]);
    this.rows = rows;
    this.#countRows();
    const isDrawn = this.list.rowHeight > 0;
    if (!isSame || !isDrawn) this.list.reset(rows.length);
  }

  /**
   * Append these rows. The others keep their position.
   * @param {Uint32Array} added
   */
  append(added) {
    const rows = new Uint32Array(this.rows.length + added.length);
    rows.set(this.rows);
    rows.set(added, this.rows.length);
    this.rows = rows;
    this.#countRows();
    this.list.grow(rows.length);
  }

  #countRows() {
    const heads = 1;
    this.element.setAttribute("aria-rowcount", String(this.rows.length + heads));
  }

  /**
   * Redraw the visible rows that are marked.
   * @param {Uint8Array} isChanged a byte per row of the model
   */
  redrawChanged(isChanged) {
    for (const index of [...this.list.shown.keys()]) {
      if (isChanged[this.rows[index]]) this.list.redraw(index);
    }
  }

  /**
   * Move the focus to a row.
   * @param {number} index
   */
  focus(index) {
    this.list.shown.get(index)?.querySelector("a")?.focus({ preventScroll: true });
  }

  /** Return the row that has the focus, or -1. */
  get focusedRow() {
    for (const [index, element] of this.list.shown) {
      if (element.contains(document.activeElement)) return this.rows[index];
    }
    return -1;
  }

  /**
   * Change the layout of the page while keeping a row at its position on the screen.
   * @param {number} index of the row, -1 for none
   * @param {() => void} change
   */
  keepPlace(index, change) {
    const rowTop = () => this.body.getBoundingClientRect().top + index * this.list.rowHeight;
    const topBefore = rowTop();
    const wasVisible = index >= 0 && topBefore > -50 && topBefore < innerHeight;
    change();
    this.list.reset();
    if (wasVisible) scrollBy(0, rowTop() - topBefore);
    this.list.update();
  }

  /** The row height, which the stylesheet defines. */
  #readRowHeight() {
    const height = getComputedStyle(this.body).getPropertyValue("--row-height");
    return parseFloat(height) || DEFAULT_ROW_HEIGHT;
  }

  /** @param {number} index */
  #drawRow(index) {
    const { model } = this;
    const row = this.rows[index];
    const run = model.runOf(row);
    const isOpen = row === this.openRow;
    const address = this.actions.addressOf(row);
    const answer = this.#answerLine(run, row);
    const cells = this.columns.map((column) => {
      const content = column.draw({ model, run, row, address, answer });
      return elWith("div", { role: "cell", class: `cell c-${column.name}` }, content);
    });
    const props = {
      class: `row${isOpen ? " open" : ""}`,
      role: "row",
      "aria-rowindex": String(index + 2),
      "aria-current": isOpen ? "true" : null,
      on: { click: (/** @type {MouseEvent} */ event) => this.#onClick(event, row) },
    };
    return elWith("div", props, cells);
  }

  /**
   * @param {MouseEvent} event
   * @param {number} row
   */
  #onClick(event, row) {
    const element = /** @type {Element} */ (event.target);
    const isOnControl = element.closest("a, button");
    const isSelecting = String(getSelection()) !== "";
    if (!isOnControl && !isSelecting) this.actions.open(row);
  }

  // answers

  /**
   * Return the first line of an answer. If it is not in memory, it is loaded and shown later.
   * @param {Run} run
   * @param {number} row
   */
  #answerLine(run, row) {
    const [result] = run.resultsOf(row);
    const text = run.snippets.peek(result);
    if (text !== undefined) return elWith("span", { dir: "auto" }, text);
    clearTimeout(this.loading);
    this.loading = setTimeout(() => this.#loadAnswers(), REST_MILLISECONDS);
    return "";
  }

  /** Load the answers of the visible rows. */
  async #loadAnswers() {
    const missing = [];
    for (const index of this.list.shown.keys()) {
      const row = this.rows[index];
      const run = this.model.runOf(row);
      const { snippets } = run;
      const [result] = run.resultsOf(row);
      if (snippets.peek(result) === undefined) missing.push({ index, row, snippets, result });
    }
    try {
      await Promise.all(
        missing.map(({ snippets, result }) => snippets.lines(snippets.blockOf(result))),
      );
    } catch {
      return; // the page reports elsewhere that the results are gone
    }
    for (const { index, row } of missing) {
      if (this.rows[index] === row) this.#showAnswer(index, row);
    }
  }

  /**
   * Show the answer of a row. The row's element is kept: the user may be clicking on it.
   * @param {number} index
   * @param {number} row
   */
  #showAnswer(index, row) {
    const cell = this.list.shown.get(index)?.querySelector(".c-answer");
    if (cell) fill(cell, this.#answerLine(this.model.runOf(row), row));
  }
}

// cells

/**
 * @param {Model} model
 * @param {number} row
 * @param {string} address
 */
function idLink(model, row, address) {
  const id = model.id(row);
  return elWith("a", { href: address, class: "id", dir: "auto", title: id }, id || "(no id)");
}

/**
 * @param {Model} model
 * @param {number} row
 */
function datasetHint(model, row) {
  if (model.run.meta.datasets.length < 2) return null;
  return el("span.hint", model.nameOf(row, "datasets"));
}

/**
 * Return the verdict and the score of a case in one of two runs.
 * @param {Run} run
 * @param {number} row
 * @returns {Child}
 */
function scoreSign(run, row) {
  const state = run.cases.states[row];
  if (state === ABSENT) return "–";
  return [stateSign(state), ` ${scoreText(run.cases.scores[row])}`];
}

/**
 * Return the score as a number and a bar; the scores of trials are dots on the bar.
 * @param {Run} run
 * @param {number} row
 * @returns {Child}
 */
function scoreBar(run, row) {
  const results = run.resultsOf(row);
  const score = run.cases.scores[row];
  const hasTrials = results.length > 1;
  const content = hasTrials ? trialDots(run, results) : scoreFill(run.cases.states[row], score);
  return [
    el("span.score-number", scoreText(score)),
    decorative("span.score-bar", content),
    hasTrials && srOnly(`, ${results.length} trials`),
  ];
}

/**
 * @param {number} state
 * @param {number} score
 */
function scoreFill(state, score) {
  const { key } = STATES[state] ?? ABSENT_STATE;
  return elWith(`span.score-fill.${key}`, { style: { width: `${(score || 0) * 100}%` } });
}

/**
 * @param {Run} run
 * @param {Uint32Array} results
 */
function trialDots(run, results) {
  const shown = [...results.subarray(0, SHOWN_TRIALS)];
  return shown.map((result, at) => {
    const score = run.columns.scores[result];
    const { key } = STATES[run.cases.stateOf(result)];
    const title = `trial ${trialName(run, result, at)}: ${scoreText(score)}`;
    return elWith(`i.dot.${key}`, { style: { left: `${score * 100}%` }, title });
  });
}

/**
 * Return a difference as a number and a bar to the left or to the right.
 * @param {number} delta
 * @returns {Child}
 */
function changeBar(delta) {
  if (Number.isNaN(delta)) return el("span.quiet", "–");
  const isWorse = delta < 0;
  const width = Math.min(1, Math.abs(delta)) * 50;
  const left = isWorse ? 50 - width : 50;
  const style = { left: `${left}%`, width: `${width}%` };
  const bar = elWith("span", { class: isWorse ? "fail" : "pass", style });
  return [el("span.change-number", signedText(delta)), decorative("span.change-bar", bar)];
}

/**
 * Return a cell per evaluator. Each evaluator has a fixed position unless there are many.
 * @param {Run} run
 * @param {number} row
 */
function evaluatorCells(run, row) {
  const found = run.evaluatorsOf(row);
  const names = run.meta.evaluators;
  const haveFixedPlaces = names.length <= SHOWN_EVALUATORS;
  const numbers = haveFixedPlaces
    ? [...names.keys()]
    : [...found.keys()].slice(0, SHOWN_EVALUATORS);
  return numbers.map((number) => evaluatorCell(names[number], found.get(number)));
}

/**
 * @param {string} name
 * @param {EvaluatorCell | undefined} cell
 */
function evaluatorCell(name, cell) {
  if (!cell) return el("span.evaluator-cell.none");
  const { key, word, sign } = STATES[cell.hasFailed ? ERROR : cell.state];
  const mean = scoreText(cell.sum / cell.count);
  const title = `${name}: ${mean} ${cell.hasFailed ? "failed" : word}`;
  const props = { class: `evaluator-cell ${key}`, title };
  return elWith("span", props, decorative("span", sign), srOnly(`${name} ${word} `));
}
