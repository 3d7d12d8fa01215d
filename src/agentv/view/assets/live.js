// @ts-check
/**
 * Reads results files that may still grow from the viewer's server, as the runs of a page.
 *
 * The page polls the index: without a pause while there is more to read, then about once a second.
 * Each response is small; no connection is kept open.
 */

/**
 * @import { RunMeta } from "../../report/page/contract"
 * @import { IndexState } from "../contract"
 * @import { ColumnKind, NumberArray, NumberArrayType } from "./columns.js"
 * @import { RowTable } from "./rows.js"
 */

import { ask } from "./ask.js";
import { COLUMNS, readColumns } from "./columns.js";
import { CaseFigures } from "./figures.js";
import { lineStores, Run, textHash } from "./model.js";
import { GrowingArray } from "./rows.js";

/** A response starts with the length of the state in 32 bits. */
const LENGTH_BYTES = 4;
/** A chunk starts with four 32-bit numbers. */
const HEAD_BYTES = 16;
/**
 * The content of a block, by the first letter of its name.
 * @type {Record<string, string>}
 */
const BLOCK_KINDS = { r: "results", s: "snippets", f: "fields" };
/** The columns in a chunk. Rows are assigned here. */
const CHUNK_COLUMNS = COLUMNS.filter(({ name }) => name !== "rows");

/** @type {IndexState} */
const NOTHING_READ = {
  gone: "",
  generation: 0,
  change: "",
  first: 0,
  chunks: 0,
  closed: 0,
  results: 0,
  read: 0,
  size: 0,
  is_behind: false,
  status: "",
  truncated: null,
  bad: 0,
  problems: [],
  datasets: [],
  targets: [],
  evaluators: [],
};

/**
 * Return the name of a key in a set.
 * @param {number} low
 * @param {number} high
 */
export function keyName(low, high) {
  return `${low},${high}`;
}

/** One results file, up to where it has been read. */
export class LiveRun {
  /**
   * @param {string} id
   * @param {number} number of the run on the page
   * @param {RowTable} table
   * @param {boolean} isByIdOnly whether cases with the same id share a row, as in a comparison
   */
  constructor(id, number, table, isByIdOnly) {
    this.id = id;
    this.table = table;
    this.isByIdOnly = isByIdOnly;
    /** The keys of ids whose cases are matched by dataset, in a comparison: see `keyName`. */
    this.sharedKeys = /** @type {Set<string>} */ (new Set());
    this.state = NOTHING_READ;
    this.columns = new Map(COLUMNS.map(({ name, type }) => [name, new GrowingArray(type)]));
    /** How many results and evaluator scores were read. */
    this.count = 0;
    this.evaluatorCount = 0;
    /** The numbers of the first result and of the first evaluator's score of each chunk. */
    this.starts = [0];
    this.evaluatorStarts = [0];
    /** How many chunks are complete. */
    this.complete = 0;
    /** The number of the first result that was not shown yet. */
    this.changedFrom = 0;
    const noBlocks = { results: [], snippets: [], fields: [] };
    this.stores = lineStores((name) => this.#readBlock(name), number, noBlocks, 0);
  }

  // reading

  /** Fetch new results. */
  async fetch() {
    const { generation } = this.state;
    const answer = await ask(
      `/api/run/${this.id}/index?generation=${generation}&from=${this.complete}`,
    );
    const bytes = await answer.arrayBuffer();
    const length = new DataView(bytes).getUint32(0, true);
    const json = new TextDecoder().decode(new Uint8Array(bytes, LENGTH_BYTES, length));
    /** @type {IndexState} */
    const state = JSON.parse(json);
    const isAnotherFile = generation !== 0 && state.generation !== generation;
    if (state.gone || isAnotherFile) {
      const change = state.change || (state.gone ? "" : "replaced");
      this.state = { ...this.state, gone: state.gone, change, is_behind: false };
      return;
    }
    this.state = state;
    this.#addChunks(bytes, LENGTH_BYTES + length);
  }

  /**
   * @param {ArrayBuffer} bytes
   * @param {number} start of the chunks
   */
  #addChunks(bytes, start) {
    const { first, chunks, closed } = this.state;
    let at = start;
    for (let chunk = first; chunk < first + chunks; chunk++) {
      at = this.#addChunk(bytes, at, chunk);
    }
    this.complete = Math.min(first + chunks, closed);
    const blockStarts = this.starts.slice(0, -1);
    for (const store of Object.values(this.stores)) store.grow(blockStarts, this.count, first);
  }

  /**
   * Store a chunk, replacing its earlier content. Return the offset of the next chunk.
   * @param {ArrayBuffer} bytes
   * @param {number} at
   * @param {number} chunk
   */
  #addChunk(bytes, at, chunk) {
    const head = new Uint32Array(bytes.slice(at, at + HEAD_BYTES));
    const [results, evaluatorScores, idBytes, size] = head;
    const reader = new ArrayReader(bytes, at + HEAD_BYTES);
    const keys = /** @type {Uint32Array} */ (reader.take(Uint32Array, 2 * results));
    const lengths = /** @type {Uint32Array} */ (reader.take(Uint32Array, results));
    const ids = new TextDecoder().decode(
      /** @type {Uint8Array} */ (reader.take(Uint8Array, idBytes)),
    );
    const start = this.starts[chunk];
    const evaluatorStart = this.evaluatorStarts[chunk];
    for (const { name, type, isPerEvaluator } of CHUNK_COLUMNS) {
      const values = reader.take(type, isPerEvaluator ? evaluatorScores : results);
      this.#column(name).write(isPerEvaluator ? evaluatorStart : start, values);
    }
    this.count = start + results;
    this.evaluatorCount = evaluatorStart + evaluatorScores;
    this.starts.length = chunk + 1;
    this.starts.push(this.count);
    this.evaluatorStarts.length = chunk + 1;
    this.evaluatorStarts.push(this.evaluatorCount);
    if (!this.isByIdOnly) this.#mixNames(keys, start);
    else if (this.sharedKeys.size > 0) this.#mixDatasets(keys, start);
    this.#column("rows").write(start, this.table.rowsOf(keys, ids, lengths));
    return at + HEAD_BYTES + size;
  }

  /**
   * Give cases of different datasets and targets separate rows, even if they share an id.
   * @param {Uint32Array} keys
   * @param {number} start
   */
  #mixNames(keys, start) {
    const datasets = this.#column("datasets").data;
    const targets = this.#column("targets").data;
    for (let at = 0; at < keys.length / 2; at++) {
      const dataset = Math.imul(datasets[start + at] + 1, 0x85ebca6b);
      const target = Math.imul(targets[start + at] + 1, 0xc2b2ae35);
      keys[2 * at + 1] ^= dataset ^ target;
    }
  }

  /**
   * Give cases of different datasets separate rows if their ids are shared. Datasets are identified
   * by name, because their numbers differ between runs.
   * @param {Uint32Array} keys
   * @param {number} start
   */
  #mixDatasets(keys, start) {
    const datasets = this.#column("datasets").data;
    for (let at = 0; at < keys.length / 2; at++) {
      if (!this.sharedKeys.has(keyName(keys[2 * at], keys[2 * at + 1]))) continue;
      keys[2 * at + 1] ^= textHash(this.state.datasets[datasets[start + at]]);
    }
  }

  /** @param {ColumnKind["name"]} name */
  #column(name) {
    return /** @type {GrowingArray} */ (this.columns.get(name));
  }

  /**
   * Return the results of a chunk, the first lines of their answers, or their fields for filters.
   * @param {string} name such as "r0-12"
   */
  async #readBlock(name) {
    const kind = BLOCK_KINDS[name[0]];
    const chunk = name.split("-")[1];
    const { generation } = this.state;
    const answer = await ask(`/api/run/${this.id}/${kind}/${chunk}?generation=${generation}`);
    return new Uint8Array(await answer.arrayBuffer());
  }

  // what was read

  /** Whether there are results that `takeChanged` has not returned yet. */
  get hasChanged() {
    return this.count > this.changedFrom;
  }

  /**
   * Mark the rows with results that no earlier call has marked.
   * @param {Uint8Array} isChanged a byte per row
   */
  takeChanged(isChanged) {
    const rows = this.#column("rows").view(this.count);
    for (let at = this.changedFrom; at < this.count; at++) {
      isChanged[rows[at]] = 1;
    }
    this.changedFrom = this.count;
  }

  /** Return the figures of the cases from the results read so far. */
  figures() {
    const columns = readColumns(({ name, isPerEvaluator }) => {
      return this.#column(name).view(isPerEvaluator ? this.evaluatorCount : this.count);
    });
    return new CaseFigures(columns, this.table.count);
  }

  /**
   * Return the run for a page.
   * @param {RunMeta} meta
   * @param {CaseFigures} cases
   */
  run(meta, cases) {
    return new Run(meta, this.stores, cases);
  }
}

/** Reads consecutive arrays of numbers. */
class ArrayReader {
  /**
   * @param {ArrayBuffer} bytes
   * @param {number} place
   */
  constructor(bytes, place) {
    this.bytes = bytes;
    this.place = place;
  }

  /**
   * @param {NumberArrayType} type
   * @param {number} count
   * @returns {NumberArray}
   */
  take(type, count) {
    const end = this.place + count * type.BYTES_PER_ELEMENT;
    const values = new type(this.bytes.slice(this.place, end)); // a copy, which is aligned
    this.place = end;
    return values;
  }
}
