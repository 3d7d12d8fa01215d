// @ts-check
/** The filter bar: the input, its interpretation and the selected rows. */

/**
 * @import { Model } from "./model.js"
 * @import { Term } from "./query.js"
 * @import { Route } from "./route.js"
 * @import { SearchProgress, SearchSignal } from "./search.js"
 * @import { CaseTable } from "./table.js"
 */

import { button, decorative, el, elWith, fill, filterInput, srOnly } from "./dom.js";
import { countText, numberText } from "./format.js";
import { isRead, rowFilter } from "./match.js";
import { describeTerm, keysOn, parseQuery, TEXT } from "./query.js";
import { searchRows } from "./search.js";

/**
 * What a route selects. The rows match all terms except those in `read`.
 * @typedef {object} Selection
 * @property {Term[]} terms
 * @property {Term[]} read the terms that results are read for: texts, tags, metadata, variables
 * @property {Uint32Array} rows in their order
 * @property {string} column that they are sorted by
 * @property {boolean} isDescending
 */

/**
 * @typedef {object} FilterActions
 * @property {(query: string) => void} onType
 * @property {(query: string) => void} setQuery
 * @property {() => void} sortNewRows
 * @property {() => void} showHelp
 */

/** Delay after a keystroke before the filter is applied, in milliseconds. */
const TYPING_MILLISECONDS = 200;

/**
 * Return the selection of a route.
 * @param {Model} model
 * @param {Route} route
 * @returns {Selection}
 */
function selectRows(model, route) {
  const terms = parseQuery(route.q ?? "", filteredBy(model));
  const usable = terms.filter((term) => !term.problem);
  const read = usable.filter((term) => isRead(term) || (term.key === TEXT && term.value));
  const sort = route.sort ?? "worst";
  const column = sort.replace("-", "");
  const isDescending = sort.startsWith("-");
  const order = model.order(column, isDescending);
  const rows = terms.length > 0 ? order.filter(rowFilter(model, terms)) : order;
  return { terms, read, rows, column, isDescending };
}

/**
 * Return what a filter of a page selects.
 * @param {Model} model
 */
function filteredBy(model) {
  return model.base ? "comparisons" : "results";
}

/** The bar with the filter. It decides which rows the table shows. */
export class CaseFilter {
  /**
   * @param {Model} model
   * @param {CaseTable} table
   * @param {FilterActions} actions
   */
  constructor(model, table, actions) {
    this.model = model;
    this.table = table;
    this.actions = actions;
    /** @type {SearchSignal} */
    this.search = { isStopped: true };
    /** The number of rows at the end that are not sorted yet. */
    this.unsorted = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.typing = undefined;
    const { input, label } = filterInput("filter the cases", "words, verdict:fail, tag:smoke", {
      "aria-describedby": "chips status",
      on: { input: () => this.#onInput() },
    });
    this.input = input;
    this.chips = elWith("div.chips", { id: "chips" });
    this.status = elWith("p.status", { id: "status", role: "status" });
    this.empty = elWith("p.empty", { hidden: true });
    this.element = this.#build(label);
  }

  /** @param {HTMLElement} label of the input */
  #build(label) {
    const helpProps = { class: "icon", title: "keys and filters (?)", "aria-label": "help" };
    const help = button(helpProps, () => this.actions.showHelp(), "?");
    const line = el("div.filter-line", label, this.input, this.status, help);
    return elWith("div.bar-top", { role: "search" }, line, this.chips);
  }

  // the input

  #onInput() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.commit(), TYPING_MILLISECONDS);
  }

  /** Apply the input immediately. */
  commit() {
    clearTimeout(this.typing);
    this.actions.onType(this.input.value.trim());
  }

  /**
   * Show a filter in the input, unless the user is typing.
   * @param {string} query
   */
  showQuery(query) {
    const isTyping = document.activeElement === this.input;
    if (!isTyping || this.input.value.trim() !== query) this.input.value = query;
  }

  /** Move the focus to the input. */
  focus() {
    this.input.focus();
    this.input.select();
  }

  // which rows

  /**
   * Show the rows that a route selects. A text search shows them as it finds them.
   * @param {Route} route
   */
  apply(route) {
    this.search.isStopped = true;
    this.unsorted = 0;
    const { terms, read, rows, column, isDescending } = selectRows(this.model, route);
    this.table.markSorted(column, isDescending);
    this.#showChips(terms);
    if (read.length === 0) {
      this.#showRows(rows, "");
      return;
    }
    const signal = { isStopped: false };
    this.search = signal;
    this.#find(read, rows, signal, (found, share) => {
      if (signal.isStopped) return;
      const progress = share < 1 ? `searching, ${Math.round(share * 100)}%` : "";
      this.#showRows(
        rows.filter((row) => found[row]),
        progress,
      );
    });
  }

  /**
   * Append the new rows of a model that has grown.
   * @param {Route} route
   * @param {number} countBefore how many rows the model had
   */
  extend(route, countBefore) {
    const { read, rows } = selectRows(this.model, route);
    const isShown = new Uint8Array(this.model.count);
    for (const row of this.table.rows) isShown[row] = 1;
    const isSearch = read.length > 0;
    // rows that were there before were searched already
    const added = rows.filter((row) => !isShown[row] && (!isSearch || row >= countBefore));
    if (!isSearch || added.length === 0) {
      this.#append(added);
      return;
    }
    const { search } = this;
    this.#find(read, added, search, (found, share) => {
      const isCurrent = search === this.search;
      if (share === 1 && isCurrent) this.#append(added.filter((row) => found[row]));
    });
  }

  /**
   * Search for terms in results, and say so if that fails.
   * @param {Term[]} terms
   * @param {Uint32Array} candidates
   * @param {SearchSignal} signal
   * @param {SearchProgress} progress
   */
  #find(terms, candidates, signal, progress) {
    searchRows(this.model, terms, candidates, signal, progress).catch((error) => {
      this.announce(`the search failed: ${error.message}`);
    });
  }

  /**
   * @param {Uint32Array} rows
   * @param {string} progress of a search
   */
  #showRows(rows, progress) {
    this.table.show(rows);
    this.#showCount(progress);
  }

  /** @param {Uint32Array} added */
  #append(added) {
    this.table.append(added);
    this.unsorted += added.length;
    this.#showCount("");
  }

  // words

  /**
   * Show a sentence instead of the count.
   * @param {string} text
   */
  announce(text) {
    this.status.textContent = text;
  }

  /** @param {string} progress */
  #showCount(progress) {
    const shown = this.table.rows.length;
    const all = countText(this.model.count, "case");
    const count = shown === this.model.count ? all : `${numberText(shown)} of ${all}`;
    fill(this.status, progress ? `${count}, ${progress}` : count, this.#unsortedHint());
    this.status.classList.toggle("busy", Boolean(progress));
    this.empty.hidden = shown > 0 || Boolean(progress);
    fill(this.empty, this.#emptyText());
  }

  #unsortedHint() {
    if (this.unsorted === 0) return null;
    const sort = button("plain", () => this.actions.sortNewRows(), "sort");
    return [`, ${numberText(this.unsorted)} new at the end `, sort];
  }

  #emptyText() {
    if (this.model.count === 0) return "This report contains no cases.";
    const showAll = button("plain", () => this.actions.setQuery(""), "Show all");
    return ["No matching cases. ", showAll];
  }

  /** @param {Term[]} terms */
  #showChips(terms) {
    const chips = terms.map((term) => {
      const remove = () => {
        const others = terms.filter((other) => other !== term);
        this.actions.setQuery(others.map((other) => other.source).join(" "));
        this.input.focus();
      };
      return button(
        { class: `chip${term.problem ? " wrong" : ""}`, title: "remove" },
        remove,
        describeTerm(term),
        decorative("span", " ×"),
        srOnly(", remove"),
      );
    });
    const hasUnknown = terms.some((term) => term.problem.startsWith("unknown key"));
    const keys = keysOn(filteredBy(this.model)).join(", ");
    fill(this.chips, chips, hasUnknown && el("span.quiet", `keys: ${keys}`));
    this.chips.hidden = terms.length === 0;
  }
}
