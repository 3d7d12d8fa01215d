// @ts-check
/** The page of one or two runs whose results files may still grow. */

/**
 * @import { PageMeta } from "../../report/page/contract"
 * @import { DescribeRequest } from "../contract"
 * @import { CaseFigures } from "./figures.js"
 */

import { App } from "./app.js";
import { askJson, postJson, RequestError } from "./ask.js";
import { button, el, elWith, fill, markReady, pause } from "./dom.js";
import { caseSums, compareCases, countFlips } from "./figures.js";
import { countText } from "./format.js";
import { keyName, LiveRun } from "./live.js";
import { Model } from "./model.js";
import { findNotices, progressText, sentence } from "./progress.js";
import { RowTable } from "./rows.js";

/** The delay before the files are read again, in milliseconds. */
const POLL = 1000;
const POLL_DONE = 3000;
const POLL_HIDDEN = 8000;
/** While files are read, the time between updates is this many times the duration of an update. */
const UPDATE_INTERVAL = 6;
const FRAME_MILLISECONDS = 500;
const MAX_CHOSEN = 200_000;
const FOOTER = "Served by agentv on this machine only.";

export class LivePage {
  /**
   * @param {string[]} ids of the runs: one, or two that are compared
   * @param {HTMLElement} root
   */
  constructor(ids, root) {
    this.root = root;
    this.table = new RowTable();
    this.runs = ids.map((id, number) => new LiveRun(id, number, this.table, ids.length > 1));
    /** @type {App | null} */
    this.app = null;
    /** How many results of each run are shown. */
    this.shownCounts = ids.map(() => 0);
    this.shownStatus = "";
    /** Whether there was more to read at the last update. */
    this.wasBehind = false;
    this.hasSharedKeys = false;
    this.nextUpdate = 0;
    this.failure = "";
    /** The notices that are shown, as JSON. */
    this.shownNotices = "";
    this.line = elWith("p.live-line", { role: "status" });
    this.notices = el("div.notices");
    this.review = elWith(
      "a.review-link",
      {
        href: `/review/${ids[0]}`,
        hidden: this.isComparison,
        on: { click: () => this.#chooseForReview() },
      },
      "Review answers",
    );
    document.querySelector(".crumbs")?.append(this.line, this.review);
    root.before(this.notices);
  }

  get isComparison() {
    return this.runs.length > 1;
  }

  get isBehind() {
    return this.runs.some((run) => run.state.is_behind);
  }

  get isRunning() {
    return this.runs.some((run) => run.state.status === "running");
  }

  // reading

  /** Read, show and wait in a loop. */
  async follow() {
    for (;;) {
      try {
        if (this.isComparison && !this.hasSharedKeys) await this.#fetchSharedKeys();
        await Promise.all(this.runs.map((run) => run.fetch()));
        this.failure = "";
        if (this.#isDue()) await this.#show();
      } catch (error) {
        this.failure = /** @type {Error} */ (error).message;
        if (!(error instanceof RequestError)) console.error(error); // a bug of the page
      }
      this.#report();
      markReady();
      await pause(this.#wait());
    }
  }

  /** Fetch the keys of ids that several datasets of a run share: their cases are matched by dataset. */
  async #fetchSharedKeys() {
    const [before, after] = this.runs;
    /** @type {[number, number][]} */
    const keys = await askJson(`/api/compare/${before.id}/${after.id}`);
    const names = new Set(keys.map(([low, high]) => keyName(low, high)));
    for (const run of this.runs) run.sharedKeys = names;
    this.hasSharedKeys = true;
  }

  #wait() {
    if (!this.failure && this.isBehind) return 0;
    if (document.hidden) return POLL_HIDDEN;
    return this.isRunning ? POLL : POLL_DONE;
  }

  /** Return whether to update the page: drawing must not take more time than reading. */
  #isDue() {
    if (this.runs.some((run) => run.count === 0)) return false;
    if (this.isComparison) return !this.isBehind && !this.app;
    const [run] = this.runs;
    const hasEnded = this.app !== null && run.state.status !== this.shownStatus;
    if (hasEnded) return true; // its record has other facts now
    return run.hasChanged && (!this.isBehind || performance.now() >= this.nextUpdate);
  }

  // showing

  async #show() {
    const start = performance.now();
    this.shownStatus = this.runs[0].state.status;
    const isChanged = new Uint8Array(this.table.count);
    for (const run of this.runs) run.takeChanged(isChanged);
    const figures = this.runs.map((run) => run.figures());
    const meta = await this.#describe(figures);
    const runs = this.runs.map((run, number) => run.run(meta.runs[number], figures[number]));
    if (!this.app) document.title = meta.runs.map(({ file }) => fileName(file)).join(" and ");
    const model = new Model(meta, this.table.ids, this.table.idLengths, runs);
    if (this.app) this.app.update(model, isChanged, this.wasBehind && this.app.isUntouched);
    else this.app = new App(model, this.root, FOOTER);
    this.wasBehind = this.isBehind;
    this.shownCounts = this.runs.map((run) => run.count);
    await nextFrame();
    const took = performance.now() - start;
    this.nextUpdate = performance.now() + UPDATE_INTERVAL * took;
  }

  /**
   * Request the sentences and intervals for the sums that the page has computed.
   * @param {CaseFigures[]} figures
   * @returns {Promise<PageMeta>}
   */
  async #describe(figures) {
    const runs = this.runs.map((run, number) => ({
      run: run.id,
      sums: caseSums(figures[number], run.state.evaluators),
    }));
    let flips = { fixed: 0, broken: 0, errored: 0 };
    if (this.isComparison) {
      const [before, after] = figures;
      flips = countFlips(compareCases(before, after).flips);
    }
    /** @type {DescribeRequest} */
    const request = { runs, flips };
    return postJson("/api/describe", request);
  }

  /** Show the progress in a line, and problems as notices. */
  #report() {
    this.line.className = `live-line${this.isRunning ? " running" : ""}`;
    const text = progressText(this.runs);
    if (this.line.textContent !== text) this.line.textContent = text;
    this.review.textContent = this.#reviewText();
    this.#showNotices();
  }

  #showNotices() {
    const notices = findNotices(this.runs);
    if (this.failure) notices.push({ text: sentence(this.failure), isFailure: true });
    const hasNewResults = this.runs.some((run, number) => run.count > this.shownCounts[number]);
    if (this.app && this.isComparison && hasNewResults) {
      const text = "New results have arrived since this comparison.";
      notices.push({ text, isFailure: false, reload: "Compare again" });
    }
    const json = JSON.stringify(notices);
    if (json === this.shownNotices) return;
    this.shownNotices = json;
    const elements = notices.map(({ text, isFailure, reload }) => {
      const props = {
        class: `notice${isFailure ? " failed" : ""}`,
        role: isFailure ? "alert" : "status",
      };
      const action = reload && button("plain", () => location.reload(), reload);
      return elWith("p", props, text, action && [" ", action]);
    });
    fill(this.notices, elements);
  }

  // review

  #reviewText() {
    if (!this.app) return "Review answers";
    const { model, table } = this.app;
    const isFiltered = table.rows.length < model.count;
    return isFiltered ? `Review these ${countText(table.rows.length, "case")}` : "Review answers";
  }

  /** Open the review page for the results that the filter selects, or for all results. */
  #chooseForReview() {
    const key = `review-chosen ${this.runs[0].id}`;
    sessionStorage.removeItem(key);
    if (!this.app) return;
    const { model, table } = this.app;
    if (table.rows.length === model.count) return;
    const results = [...table.rows].flatMap((row) => [...model.run.resultsOf(row)]);
    sessionStorage.setItem(key, JSON.stringify(results.slice(0, MAX_CHOSEN)));
  }
}

/** Wait until the browser has drawn; a page that is not visible is never drawn. */
function nextFrame() {
  return new Promise((resolve) => {
    requestAnimationFrame(() => setTimeout(resolve));
    setTimeout(resolve, FRAME_MILLISECONDS);
  });
}

/** @param {string} path */
function fileName(path) {
  return path.slice(path.lastIndexOf("/") + 1);
}
