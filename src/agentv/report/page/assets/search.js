// @ts-check
/**
 * Finds rows for terms about fields that are not in the columns. It reads results block by block
 * (questions and answers, or tags, metadata and variables) while the page stays responsive.
 */

/**
 * @import { Model, Run } from "./model.js"
 * @import { Term } from "./query.js"
 * @import { Lines, LineStore } from "./source.js"
 */

import { pause } from "./dom.js";
import { fieldsTest } from "./match.js";
import { TEXT } from "./query.js";

/**
 * Stops a search when `isStopped` is set.
 * @typedef {{ isStopped: boolean }} SearchSignal
 */

/**
 * Called with the matches so far and the share of blocks that were read.
 * @typedef {(found: Uint8Array, share: number) => void} SearchProgress
 */

/**
 * A block to read.
 * @typedef {object} Job
 * @property {FieldSearch | TextSearch} search
 * @property {Run} run
 * @property {LineStore} store
 * @property {number} block
 */

const SEARCHED_FIELDS = ["eval_id", "question", "candidate_answer", "error"];
const REPORT_MILLISECONDS = 150;

/**
 * Find the rows among `candidates` that match all terms. `progress` receives a byte per row:
 * whether it matches.
 * @param {Model} model
 * @param {Term[]} terms texts, and terms about fields that are read
 * @param {Uint32Array} candidates
 * @param {SearchSignal} signal
 * @param {SearchProgress} progress
 */
export async function searchRows(model, terms, candidates, signal, progress) {
  const wanted = new Uint8Array(model.count);
  for (const row of candidates) wanted[row] = 1;
  const texts = new TextSearch(
    model,
    terms.filter((term) => term.key === TEXT),
    wanted,
  );
  const fields = new FieldSearch(
    model,
    terms.filter((term) => term.key !== TEXT),
    wanted,
  );
  /** @type {(FieldSearch | TextSearch)[]} */
  const searches = [fields, texts].filter((search) => search.terms.length > 0);
  const jobs = searches.flatMap((search) => /** @type {Job[]} */ (search.jobs()));
  /** @param {boolean} isFinished */
  const matches = (isFinished) => {
    const isMatch = (/** @type {number} */ row) => {
      return searches.every((search) => search.matches(row, isFinished));
    };
    return wanted.map((isWanted, row) => (isWanted && isMatch(row) ? 1 : 0));
  };
  let reportedAt = performance.now();
  progress(matches(jobs.length === 0), 0);
  for (const [done, { search, run, store, block }] of jobs.entries()) {
    const lines = await store.lines(block);
    if (signal.isStopped) return;
    search.readBlock(run, lines, store.starts[block]);
    const isLast = done + 1 === jobs.length;
    if (isLast || performance.now() - reportedAt <= REPORT_MILLISECONDS) continue;
    progress(matches(false), (done + 1) / jobs.length);
    await pause();
    reportedAt = performance.now();
    if (signal.isStopped) return;
  }
  progress(matches(true), 1);
}

/** The matches of a search so far. */
class Search {
  /**
   * @param {Model} model
   * @param {Term[]} terms
   * @param {Uint8Array} wanted a byte per row: whether it is a candidate
   */
  constructor(model, terms, wanted) {
    this.model = model;
    this.terms = terms;
    this.wanted = wanted;
    /** A byte per row for each term: whether it matches, ignoring negation. */
    this.hits = terms.map(() => new Uint8Array(model.count));
  }

  /**
   * Return whether a row matches all terms. A negated term is undecided until everything has been
   * read.
   * @param {number} row
   * @param {boolean} isFinished
   */
  matches(row, isFinished) {
    return this.terms.every((term, number) => {
      const isHit = this.hits[number][row] === 1;
      return term.isNegated ? isFinished && !isHit : isHit;
    });
  }

  /**
   * Return the blocks of a store to read: those that have results of wanted rows.
   * @param {Run} run
   * @param {LineStore} store
   * @param {Uint8Array} wanted
   */
  jobsOf(run, store, wanted) {
    const { rows } = run.columns;
    const { starts, count } = store;
    const blocks = [...starts.keys()].filter((block) => {
      const end = starts[block + 1] ?? count;
      return rows.subarray(starts[block], end).some((row) => wanted[row]);
    });
    return blocks.map((block) => ({ search: this, run, store, block }));
  }
}

/** Finds terms about tags, metadata and variables, in the run whose results a row shows. */
class FieldSearch extends Search {
  tests = this.terms.map(fieldsTest);

  /** Return the blocks to read. */
  jobs() {
    return this.model.runs.flatMap((run) => {
      const wanted = this.wanted.map((isWanted, row) => {
        return isWanted && this.model.runOf(row) === run ? 1 : 0;
      });
      return this.jobsOf(run, run.fields, wanted);
    });
  }

  /**
   * @param {Run} run
   * @param {Lines} lines
   * @param {number} first the number of the first result of the block
   */
  readBlock(run, lines, first) {
    lines
      .whole()
      .split("\n")
      .forEach((line, at) => {
        const row = run.columns.rows[first + at];
        if (!line || !this.wanted[row] || this.model.runOf(row) !== run) return;
        const fields = JSON.parse(line);
        this.tests.forEach((test, number) => {
          if (test(fields)) this.hits[number][row] = 1;
        });
      });
  }
}

/** Finds texts in ids, questions and answers. */
class TextSearch extends Search {
  /**
   * @param {Model} model
   * @param {Term[]} terms
   * @param {Uint8Array} wanted
   */
  constructor(model, terms, wanted) {
    super(model, terms, wanted);
    this.#markIds();
  }

  /** Return the blocks to read. */
  jobs() {
    return this.model.runs.flatMap((run) => this.jobsOf(run, run.results, this.wanted));
  }

  /** Mark the rows whose ids contain a text. */
  #markIds() {
    const ids = this.model.ids.toLowerCase();
    // lower case makes some letters longer, which shifts the positions of ids
    const isSameLength = ids.length === this.model.ids.length;
    this.terms.forEach((term, number) => {
      if (isSameLength) this.#markInJoinedIds(ids, term.value, this.hits[number]);
      else this.#markOneByOne(term.value, this.hits[number]);
    });
  }

  /**
   * @param {string} ids
   * @param {string} text
   * @param {Uint8Array} hits
   */
  #markInJoinedIds(ids, text, hits) {
    const { idStarts } = this.model;
    let row = 0;
    for (let at = ids.indexOf(text); at >= 0; at = ids.indexOf(text, at + 1)) {
      while (idStarts[row + 1] <= at) row++;
      const isInsideId = at + text.length <= idStarts[row + 1];
      if (isInsideId) hits[row] = 1;
    }
  }

  /**
   * @param {string} text
   * @param {Uint8Array} hits
   */
  #markOneByOne(text, hits) {
    for (let row = 0; row < this.model.count; row++) {
      if (this.model.id(row).toLowerCase().includes(text)) hits[row] = 1;
    }
  }

  /**
   * Search the results of a block. Only lines that contain a text anywhere are parsed.
   * @param {Run} run
   * @param {Lines} lines
   * @param {number} first the number of the first result of the block
   */
  readBlock(run, lines, first) {
    const needles = this.terms.map((term) => JSON.stringify(term.value).slice(1, -1));
    const whole = lines.whole().toLowerCase();
    if (!needles.some((needle) => whole.includes(needle))) return;
    whole.split("\n").forEach((line, at) => {
      const row = run.columns.rows[first + at];
      if (!this.wanted[row]) return;
      const isNews = (/** @type {string} */ needle, /** @type {number} */ number) =>
        !this.hits[number][row] && line.includes(needle);
      if (needles.some(isNews)) this.#readResult(lines.text(at), row);
    });
  }

  /**
   * @param {string} json
   * @param {number} row
   */
  #readResult(json, row) {
    const result = JSON.parse(json);
    const texts = SEARCHED_FIELDS.map((field) => result[field])
      .filter((value) => typeof value === "string")
      .map((text) => text.toLowerCase());
    this.terms.forEach((term, number) => {
      if (texts.some((text) => text.includes(term.value))) this.hits[number][row] = 1;
    });
  }
}
