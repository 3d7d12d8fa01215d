// @ts-check
/** The cases and runs of a page. The table, the plots and the filters read them. */

/**
 * @import { LineBlocks, PageMeta, RunMeta, EmbeddedPageMeta } from "../contract"
 * @import { Columns, NumberArray, NumberArrayType } from "./columns.js"
 * @import { ReadBlock } from "./source.js"
 */

import { COLUMNS, readColumns, runningSums } from "./columns.js";
import { NOT_APPLICABLE_FLAG, UNJUDGED_FLAG } from "./constants.js";
import { BROKEN, CaseFigures, compareCases, SAME } from "./figures.js";
import { lastAtMost, LineStore } from "./source.js";
import { ABSENT, PASS, stateOfVerdictBits } from "./states.js";

/** Snippets are small, so more of their blocks are kept in memory than blocks of results. */
const KEPT_SNIPPET_BLOCKS = 400;
/**
 * The numbers of a case that rows are sorted and filtered by.
 * @type {Record<string, "scores" | "durations" | "costs">}
 */
export const CASE_VALUES = { score: "scores", duration: "durations", cost: "costs" };

/**
 * Where the results of a run are read from, the first line of each answer, and the fields that only
 * filters read.
 * @typedef {object} LineStores
 * @property {LineStore} results
 * @property {LineStore} snippets
 * @property {LineStore} fields
 */

/**
 * A result as it is in the results file. Its fields are not validated: other tools write results.
 * @typedef {Record<string, any>} Result
 */

/**
 * The scores of one evaluator for a case, over all trials.
 * @typedef {object} EvaluatorCell
 * @property {number} sum of the scores
 * @property {number} count of the scores
 * @property {number} state the worst
 * @property {boolean} hasFailed
 */

/** The results of one run. */
export class Run {
  /**
   * @param {RunMeta} meta
   * @param {LineStores} stores
   * @param {CaseFigures} cases
   */
  constructor(meta, stores, cases) {
    this.meta = meta;
    this.results = stores.results;
    this.snippets = stores.snippets;
    this.fields = stores.fields;
    this.cases = cases;
    this.columns = cases.columns;
  }

  /**
   * Return the numbers of the results of a row.
   * @param {number} row
   */
  resultsOf(row) {
    return this.cases.resultsOf(row);
  }

  /**
   * Return a result as it is in the results file.
   * @param {number} number
   * @returns {Promise<Result>}
   */
  async result(number) {
    return JSON.parse(await this.results.text(number));
  }

  /**
   * Return the scores of a row per evaluator, by the number of the evaluator's name.
   * @param {number} row
   */
  evaluatorsOf(row) {
    const { evaluatorNames, evaluatorScores, evaluatorFlags } = this.columns;
    /** @type {Map<number, EvaluatorCell>} */
    const found = new Map();
    for (const at of this.scoresOf(row)) {
      const number = evaluatorNames[at];
      const flags = evaluatorFlags[at];
      if (flags & NOT_APPLICABLE_FLAG) continue;
      const cell = found.get(number) ?? { sum: 0, count: 0, state: PASS, hasFailed: false };
      cell.sum += evaluatorScores[at];
      cell.count++;
      cell.state = Math.min(cell.state, stateOfVerdictBits(flags));
      cell.hasFailed ||= Boolean(flags & UNJUDGED_FLAG);
      found.set(number, cell);
    }
    return found;
  }

  /**
   * Return the indexes of a row's evaluator scores.
   * @param {number} row
   */
  scoresOf(row) {
    const { evaluatorStarts } = this.cases;
    const places = [];
    for (const result of this.resultsOf(row)) {
      for (let at = evaluatorStarts[result]; at < evaluatorStarts[result + 1]; at++) {
        places.push(at);
      }
    }
    return places;
  }
}

/**
 * Return the stores from which the results of a run are read.
 * @param {ReadBlock} readBlock
 * @param {number} number of the run
 * @param {LineBlocks} starts
 * @param {number} count of the results
 * @returns {LineStores}
 */
export function lineStores(readBlock, number, starts, count) {
  return {
    results: new LineStore(readBlock, `r${number}-`, starts.results, count),
    snippets: new LineStore(readBlock, `s${number}-`, starts.snippets, count, KEPT_SNIPPET_BLOCKS),
    fields: new LineStore(readBlock, `f${number}-`, starts.fields, count),
  };
}

/**
 * Return the model of a page whose data is read in blocks.
 * @param {EmbeddedPageMeta} meta
 * @param {ReadBlock} readBlock
 */
export async function loadModel(meta, readBlock) {
  const [ids, lengths] = await Promise.all([readBlock("ids"), readBlock("id-lengths")]);
  const loading = meta.runs.map(async (runMeta, number) => {
    const columns = await loadColumns(readBlock, number);
    const stores = lineStores(readBlock, number, runMeta.blocks, runMeta.results);
    return new Run(runMeta, stores, new CaseFigures(columns, meta.rows));
  });
  const idLengths = /** @type {Uint32Array} */ (typedArray(lengths, Uint32Array));
  return new Model(meta, new TextDecoder().decode(ids), idLengths, await Promise.all(loading));
}

/**
 * @param {ReadBlock} readBlock
 * @param {number} number of the run
 * @returns {Promise<Columns>}
 */
async function loadColumns(readBlock, number) {
  const reading = COLUMNS.map(async (kind) => {
    const bytes = await readBlock(`${kind.block}-${number}`);
    return /** @type {const} */ ([kind.name, typedArray(bytes, kind.type)]);
  });
  const found = new Map(await Promise.all(reading));
  return readColumns((kind) => /** @type {NumberArray} */ (found.get(kind.name)));
}

/**
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {NumberArrayType} type
 */
function typedArray(bytes, type) {
  return new type(bytes.buffer, 0, Math.floor(bytes.byteLength / type.BYTES_PER_ELEMENT));
}

/**
 * Return a hash of a part of a text (FNV-1a).
 * @param {string} text
 * @param {number} [from]
 * @param {number} [to]
 */
export function textHash(text, from = 0, to = text.length) {
  let hash = 2166136261;
  for (let at = from; at < to; at++) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 16777619);
  }
  return hash >>> 0;
}

/** All rows of a page and its one or two runs. A row is a case. */
export class Model {
  /**
   * @param {PageMeta} meta
   * @param {string} ids of all rows, joined
   * @param {Uint32Array} idLengths
   * @param {Run[]} runs
   */
  constructor(meta, ids, idLengths, runs) {
    this.meta = meta;
    this.count = idLengths.length;
    this.ids = ids;
    this.idStarts = runningSums(idLengths);
    this.runs = runs;
    /** The run that the table shows: the newer one. */
    this.run = runs[runs.length - 1];
    /** The older run of a comparison. */
    this.base = runs.length > 1 ? runs[0] : null;
    /** How scores and verdicts changed, by row; empty unless two runs are compared. */
    this.deltas = new Float64Array(0);
    this.flips = new Uint8Array(0);
    if (this.base) {
      const { deltas, flips } = compareCases(this.base.cases, this.run.cases);
      this.deltas = deltas;
      this.flips = flips;
    }
    /** @type {Map<string, Uint32Array>} */
    this.orders = new Map();
    /** @type {Set<number> | null} */
    this.sharedHashes = null;
  }

  /**
   * Return the id of a row.
   * @param {number} row
   */
  id(row) {
    return this.ids.slice(this.idStarts[row], this.idStarts[row + 1]);
  }

  /**
   * Return the run whose results are shown for a row: the newer one, if it has any.
   * @param {number} row
   */
  runOf(row) {
    return this.base && this.run.cases.states[row] === ABSENT ? this.base : this.run;
  }

  /** @param {number} row */
  state(row) {
    return this.runOf(row).cases.states[row];
  }

  /** @param {number} row */
  score(row) {
    return this.runOf(row).cases.scores[row];
  }

  /**
   * Return the dataset or the target of a row.
   * @param {number} row
   * @param {"datasets" | "targets"} kind
   */
  nameOf(row, kind) {
    const run = this.runOf(row);
    const [first] = run.resultsOf(row);
    return run.meta[kind][run.columns[kind][first]];
  }

  // rows by id

  /**
   * Return whether another row may have the same id. Compares hashes, so false positives are rare.
   * @param {number} row
   */
  mayShareId(row) {
    this.sharedHashes ??= this.#findSharedHashes();
    return this.sharedHashes.size > 0 && this.sharedHashes.has(this.#idHash(row));
  }

  #findSharedHashes() {
    const hashes = Uint32Array.from({ length: this.count }, (_, row) => this.#idHash(row)).sort();
    return new Set(hashes.filter((hash, at) => hash === hashes[at - 1]));
  }

  /**
   * Return a hash of the id of a row.
   * @param {number} row
   */
  #idHash(row) {
    return textHash(this.ids, this.idStarts[row], this.idStarts[row + 1]);
  }

  /**
   * Return the rows with an id: more than one if datasets or targets share it.
   * @param {string} id
   */
  rowsWithId(id) {
    const found = [];
    for (let at = this.ids.indexOf(id); at >= 0; at = this.ids.indexOf(id, at + 1)) {
      const row = lastAtMost(this.idStarts, at, this.count);
      const isWholeId = this.idStarts[row] === at && this.idStarts[row + 1] - at === id.length;
      if (isWholeId) found.push(row);
      if (!id) break;
    }
    return found;
  }

  // orders

  /**
   * Return all rows ordered by a column. Ties are in the order of the results file.
   * @param {string} column
   * @param {boolean} isDescending
   */
  order(column, isDescending) {
    const name = `${isDescending ? "-" : ""}${column}`;
    let order = this.orders.get(name);
    if (!order) {
      order = this.#sort(column, isDescending);
      this.orders.set(name, order);
    }
    return order;
  }

  /**
   * @param {string} column
   * @param {boolean} isDescending
   */
  #sort(column, isDescending) {
    if (column === "id") return this.#sortById(isDescending);
    return sortByNumbers(this.#sortKeys(column), isDescending);
  }

  /** @param {boolean} isDescending */
  #sortById(isDescending) {
    const ids = Array.from({ length: this.count }, (_, row) => this.id(row));
    const sign = isDescending ? -1 : 1;
    return Uint32Array.from(ids.keys()).sort((a, b) => {
      if (ids[a] < ids[b]) return -sign;
      if (ids[a] > ids[b]) return sign;
      return a - b;
    });
  }

  /**
   * @param {string} column
   * @returns {Float64Array}
   */
  #sortKeys(column) {
    const { run, base } = this;
    /** @param {(row: number) => number} compute */
    const byRow = (compute) => Float64Array.from({ length: this.count }, (_, row) => compute(row));
    if (column === "before") return (base ?? run).cases.scores;
    if (column === "change") return base ? this.deltas : run.cases.scores;
    const values = CASE_VALUES[column];
    return byRow((row) => (values ? this.runOf(row).cases[values][row] : this.#badness(row)));
  }

  /**
   * Return the default sort key. Failures come first; in a comparison, broken cases come first,
   * followed by those with a lower score.
   * @param {number} row
   */
  #badness(row) {
    if (!this.base) return this.state(row) * 4 + (this.score(row) || 0);
    const flip = this.flips[row];
    const delta = this.deltas[row];
    const isWorstFirst = flip === SAME || flip === BROKEN;
    return flip * 8 + (isWorstFirst ? delta : -delta || 0);
  }
}

/**
 * Return the rows sorted by their keys. Unknown keys (NaN) come last in both directions.
 *
 * The rank of a key and its row are packed into one number, because browsers sort plain numbers ten
 * times faster than with a comparison function.
 * @param {Float64Array} keys
 * @param {boolean} isDescending
 */
function sortByNumbers(keys, isDescending) {
  const rowBits = Math.max(1, Math.ceil(Math.log2(keys.length + 1)));
  const rowSpan = 2 ** rowBits;
  const lastRank = 2 ** (52 - rowBits) - 2;
  let low = Infinity;
  let high = -Infinity;
  for (const key of keys) {
    if (key < low) low = key;
    if (key > high) high = key;
  }
  const range = high - low || 1;
  const packed = Float64Array.from(keys, (key, row) => {
    const share = (key - low) / range;
    const rank = Math.round((isDescending ? 1 - share : share) * lastRank);
    return (Number.isNaN(key) ? lastRank + 1 : rank) * rowSpan + row;
  });
  packed.sort();
  return Uint32Array.from(packed, (value) => value % rowSpan);
}
