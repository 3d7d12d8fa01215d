// @ts-check
/** Assembles a page from header, filter, table and case. The URL determines what is shown. */

/**
 * @import { Model } from "./model.js"
 * @import { Route } from "./route.js"
 */

import { comparisonHeader } from "./compare.js";
import { copyText, el, fill } from "./dom.js";
import { CaseFilter } from "./filter.js";
import { numberText } from "./format.js";
import { runHeader } from "./header.js";
import { helpDialog } from "./help.js";
import { listenForKeys } from "./keys.js";
import { caseMarkdown } from "./markdown.js";
import { CasePanel } from "./panel.js";
import { printedCases } from "./print.js";
import { NO_CASE, readRoute, routeHash, routeRow, rowRoute, writeRoute } from "./route.js";
import { CaseTable } from "./table.js";

/** Minimum width for showing a case next to the table. The stylesheets use the same value. */
const WIDE = "(min-width: 1000px)";
/** Space between the filter and a row that is scrolled into view. */
const SPACE_ABOVE = 40;
/** Selects the focusable elements of a header. */
const FOCUSABLE = "button, a, summary";

/** The page of one run, or of a comparison of two. */
export class App {
  /**
   * @param {Model} model
   * @param {HTMLElement} root
   * @param {string} footer
   */
  constructor(model, root, footer) {
    this.model = model;
    /** @type {Route} */
    this.route = {};
    this.table = new CaseTable(model, {
      sortBy: (column, isLargestFirst) => this.sortBy(column, isLargestFirst),
      open: (row) => this.go(this.#routeTo(row), true),
      addressOf: (row) => this.#addressOf(row),
    });
    this.filter = new CaseFilter(model, this.table, {
      onType: (query) => this.go({ q: query || undefined }, false),
      setQuery: (query) => this.setQuery(query),
      sortNewRows: () => this.filter.apply(this.route),
      showHelp: () => this.help.showModal(),
    });
    this.panel = new CasePanel({
      close: () => this.close(),
      step: (by) => this.step(by),
      showTrial: (name) => this.go({ trial: String(name) }, false),
    });
    this.help = helpDialog(model.base !== null);
    this.printed = el("div.printed");
    this.main = el(
      "main",
      el("h2.sr", "Cases"),
      this.filter.element,
      this.table.element,
      this.filter.empty,
      this.printed,
    );
    this.headerLife = new AbortController();
    this.header = this.#drawHeader();
    fill(
      root,
      this.header,
      el("div.panes", this.main, this.panel.element),
      this.help,
      el("footer", footer, " ", el("kbd", "?"), " for keyboard shortcuts."),
    );
    this.#listen();
    this.#follow(true);
  }

  #listen() {
    const resizes = new ResizeObserver(() => {
      const height = `${this.filter.element.offsetHeight}px`;
      this.table.element.style.setProperty("--bar", height);
    });
    resizes.observe(this.filter.element);
    addEventListener("popstate", () => this.#follow());
    addEventListener("hashchange", () => this.#follow());
    addEventListener("beforeprint", () => fill(this.printed, printedCases(this.model)));
    listenForKeys(this);
  }

  #drawHeader() {
    const { model } = this;
    const { signal } = this.headerLife;
    const { comparison } = model.meta;
    /** @param {string} query */
    const filterBy = (query) => {
      this.setQuery(query);
      this.filter.element.scrollIntoView({ block: "start" });
    };
    return comparison
      ? comparisonHeader(model, comparison, filterBy, signal)
      : runHeader(model, filterBy, signal);
  }

  // a run in progress

  /** Whether rows may still be re-sorted: the user has neither scrolled nor opened a case. */
  get isUntouched() {
    const hasFocus = this.main.contains(document.activeElement);
    return scrollY === 0 && !this.panel.isOpen && !hasFocus;
  }

  /**
   * Show a model that has grown. Unless `sorts` is set, rows keep their position, and new ones are
   * appended until the user sorts or filters.
   * @param {Model} model
   * @param {Uint8Array} isChanged a byte per row: whether it has new results
   * @param {boolean} sorts
   */
  update(model, isChanged, sorts) {
    const countBefore = this.model.count;
    this.model = model;
    this.table.setModel(model);
    this.filter.model = model;
    this.#replaceHeader();
    if (sorts) this.filter.apply(this.route);
    else this.filter.extend(this.route, countBefore);
    this.table.redrawChanged(isChanged);
    const isWaitingForCase = !this.panel.isOpen && this.route.case !== undefined;
    if (isWaitingForCase) this.#open(routeRow(model, this.route), this.route.trial);
  }

  /** Replace the header; keep the scroll position, the focus and the open sections. */
  #replaceHeader() {
    const old = this.header;
    const topBefore = this.main.getBoundingClientRect().top;
    const focusable = [...old.querySelectorAll(FOCUSABLE)];
    const focused = focusable.findIndex((each) => each === document.activeElement);
    const wereOpen = [...old.querySelectorAll("details")].map((each) => each.open);
    this.headerLife.abort();
    this.headerLife = new AbortController();
    this.header = this.#drawHeader();
    old.replaceWith(this.header);
    this.header.querySelectorAll("details").forEach((each, at) => {
      each.open = wereOpen[at] ?? false;
    });
    if (focused >= 0) {
      /** @type {NodeListOf<HTMLElement>} */
      const candidates = this.header.querySelectorAll(FOCUSABLE);
      candidates[focused]?.focus({ preventScroll: true });
    }
    const moved = this.main.getBoundingClientRect().top - topBefore;
    if (moved && scrollY > 0) scrollBy(0, moved);
  }

  // the address

  /** Show the view that the URL fragment describes. */
  #follow(isFirst = false) {
    const { q, sort } = this.route;
    this.route = readRoute();
    const isAnotherList = q !== this.route.q || sort !== this.route.sort;
    if (isFirst || isAnotherList) {
      this.filter.showQuery(this.route.q ?? "");
      this.filter.apply(this.route);
    }
    this.#open(routeRow(this.model, this.route), this.route.trial);
  }

  /**
   * Change the route and the URL.
   * @param {Route} change
   * @param {boolean} isStep whether Back returns to what is shown now
   */
  go(change, isStep) {
    writeRoute({ ...this.route, ...change }, isStep);
    this.#follow();
  }

  /**
   * Filter the cases.
   * @param {string} query
   */
  setQuery(query) {
    this.filter.input.value = query;
    this.go({ q: query || undefined, ...NO_CASE }, true);
  }

  /**
   * Sort by a column. A second call reverses the order, a third restores the default order.
   * @param {string} column
   * @param {boolean} isLargestFirst
   */
  sortBy(column, isLargestFirst) {
    const first = isLargestFirst ? `-${column}` : column;
    const second = isLargestFirst ? column : `-${column}`;
    const current = this.route.sort ?? "worst";
    /** @type {string | undefined} */
    let next = first;
    if (current === first) next = second;
    else if (current === second && column !== "worst") next = undefined;
    this.go({ sort: next }, false);
  }

  /** @param {number} row */
  #routeTo(row) {
    return { ...NO_CASE, ...rowRoute(this.model, row) };
  }

  /** @param {number} row */
  #addressOf(row) {
    const { q, sort } = this.route;
    return routeHash({ q, sort, ...rowRoute(this.model, row) });
  }

  // a case

  /**
   * Open the case of a row; -1 closes the open case.
   * @param {number} row
   * @param {string | undefined} trial
   */
  #open(row, trial) {
    if (row < 0 && this.route.case !== undefined) {
      this.filter.announce(`no such case: ${this.route.case}`);
    }
    const rowBefore = this.panel.row;
    if (!this.panel.select(row, trial)) return;
    const isAnotherCase = row !== rowBefore;
    const isOpen = row >= 0;
    const wasOpen = rowBefore >= 0;
    const index = this.table.rows.indexOf(isOpen ? row : rowBefore);
    this.table.openRow = row;
    this.table.keepPlace(isOpen === wasOpen ? -1 : index, () => this.#setLayout(isOpen));
    if (isAnotherCase) this.table.list.redrawAll();
    const pageTitle = document.title.replace(/^.* · /, "");
    if (!isOpen) {
      document.title = pageTitle;
      this.table.focus(index);
      return;
    }
    document.title = `${this.model.id(row)} · ${pageTitle}`;
    if (index >= 0) this.table.list.reveal(index, this.filter.element.offsetHeight + SPACE_ABOVE);
    this.panel.show(this.model, this.#position(index)).then(() => {
      if (isAnotherCase) this.panel.focus();
    });
  }

  /** @param {boolean} isOpen */
  #setLayout(isOpen) {
    document.body.classList.toggle("has-case", isOpen);
    this.panel.element.hidden = !isOpen;
    this.main.inert = isOpen && !matchMedia(WIDE).matches;
  }

  /** @param {number} index */
  #position(index) {
    if (index < 0) return "hidden by the filter";
    return `${numberText(index + 1)} of ${numberText(this.table.rows.length)}`;
  }

  /** Close the case that is open. */
  close() {
    this.go(NO_CASE, true);
  }

  /**
   * Open the next or previous matching row. Stop at either end.
   * @param {number} by 1 or -1
   * @param {(row: number) => boolean} [matches]
   */
  step(by, matches = () => true) {
    const { rows } = this.table;
    const current = this.table.rows.indexOf(this.panel.row);
    const isShown = current >= 0;
    const atFirst = by > 0 ? 0 : -1;
    for (let at = isShown ? current + by : atFirst; at >= 0 && at < rows.length; at += by) {
      if (!matches(rows[at])) continue;
      this.go(this.#routeTo(rows[at]), !this.panel.isOpen);
      return;
    }
  }

  /** Copy the focused case as Markdown. */
  async copyFocused() {
    const row = this.table.focusedRow;
    if (row < 0) return;
    const run = this.model.runOf(row);
    const [first] = run.resultsOf(row);
    const result = await run.result(first);
    const isCopied = await copyText(caseMarkdown(result));
    this.filter.announce(isCopied ? `copied ${result.eval_id}` : "could not copy");
  }
}
