/** The columns of a page: what its table, plots and filters need of every case and every result. */

import { ABSENT, BORDERLINE, ERROR, FAIL, PASS } from "./format.js";
import { LineStore } from "./source.js";

export const TYPES = {
  rows: Uint32Array, scores: Float64Array, flags: Uint8Array, durations: Float32Array, costs: Float32Array,
  trials: Uint16Array, datasets: Uint32Array, targets: Uint32Array, "evaluator-counts": Uint16Array,
  "evaluator-names": Uint32Array, "evaluator-scores": Float32Array, "evaluator-flags": Uint8Array,
};
const VERDICT_BITS = 3, ERROR_BIT = 4, UNJUDGED_BIT = 16;
const VERDICT_STATES = [FAIL, BORDERLINE, PASS, FAIL];
const MAX_LINE_BLOCKS = 400;

export const BROKEN = 0, FIXED = 1, SAME = 2, ONLY_A = 3, ONLY_B = 4;

/** The results of one run. */
export class Run {
  constructor(meta, number, stores, columns, rowCount) {
    this.meta = meta;
    this.number = number;
    this.count = columns.rows.length;
    this.rowCount = rowCount;
    for (const [name, column] of Object.entries(columns)) this[camel(name)] = column;
    Object.assign(this, stores);
    this.groupByRow();
    this.summarize();
    this.evaluatorStarts = runningSums(this.evaluatorCounts);
  }

  /** Finds the results of each row: those of row r are order[starts[r]] up to order[starts[r + 1]]. */
  groupByRow() {
    const counts = new Uint32Array(this.rowCount);
    for (const row of this.rows) counts[row]++;
    this.starts = runningSums(counts);
    this.order = new Uint32Array(this.count);
    const next = this.starts.slice();
    for (let at = 0; at < this.count; at++) this.order[next[this.rows[at]]++] = at;
  }

  /** Computes the figures of each row. */
  summarize() {
    this.rowScores = new Float64Array(this.rowCount).fill(NaN);
    this.rowStates = new Uint8Array(this.rowCount).fill(ABSENT);
    this.rowDurations = new Float64Array(this.rowCount).fill(NaN);
    this.rowCosts = new Float64Array(this.rowCount).fill(NaN);
    for (let row = 0; row < this.rowCount; row++) {
      const from = this.starts[row], to = this.starts[row + 1];
      if (from === to) continue;
      this.rowScores[row] = this.meanOf(this.scores, from, to);
      this.rowDurations[row] = this.meanOf(this.durations, from, to);
      this.rowCosts[row] = this.meanOf(this.costs, from, to);
      this.rowStates[row] = to - from === 1 ? this.state(this.order[from]) : this.majority(row, from, to);
    }
  }

  meanOf(column, from, to) {
    let sum = 0, known = 0;
    for (let at = from; at < to; at++) {
      const value = column[this.order[at]];
      if (!Number.isNaN(value)) { sum += value; known++; }
    }
    return known ? Math.round((sum / known) * 1e12) / 1e12 : NaN;
  }

  /** Returns the state of a case with trials: most of those that were scored decide. */
  majority(row, from, to) {
    let passed = 0, scored = 0, errors = 0;
    for (let at = from; at < to; at++) {
      const flags = this.flags[this.order[at]];
      const state = this.state(this.order[at]);
      if (state === ERROR) errors++;
      if (!(flags & (ERROR_BIT | UNJUDGED_BIT))) scored++;
      if (state === PASS) passed++;
    }
    if (errors === to - from) return ERROR;
    if (2 * passed > scored) return PASS;
    const mean = this.rowScores[row];
    return mean >= 0.6 && mean < 0.8 ? BORDERLINE : FAIL;
  }

  /** Returns what a result came to. */
  state(result) {
    const flags = this.flags[result];
    return flags & ERROR_BIT ? ERROR : VERDICT_STATES[flags & VERDICT_BITS];
  }

  isUnjudged(result) {
    return Boolean(this.flags[result] & UNJUDGED_BIT);
  }

  resultsOf(row) {
    return this.order.subarray(this.starts[row], this.starts[row + 1]);
  }

  /** Returns the evaluators of a row: `{name, score, state, failed}` by number, over all its trials. */
  evaluatorsOf(row) {
    const found = new Map();
    for (const result of this.resultsOf(row)) {
      for (let at = this.evaluatorStarts[result]; at < this.evaluatorStarts[result + 1]; at++) {
        const number = this.evaluatorNames[at];
        const entry = found.get(number) ?? { sum: 0, count: 0, state: PASS, failed: false };
        entry.sum += this.evaluatorScores[at];
        entry.count++;
        entry.state = Math.min(entry.state, VERDICT_STATES[this.evaluatorFlags[at] & VERDICT_BITS]);
        entry.failed ||= Boolean(this.evaluatorFlags[at] & UNJUDGED_BIT);
        found.set(number, entry);
      }
    }
    return found;
  }

  hasEvaluator(row, numbers) {
    for (const result of this.resultsOf(row)) {
      for (let at = this.evaluatorStarts[result]; at < this.evaluatorStarts[result + 1]; at++) {
        if (numbers.has(this.evaluatorNames[at])) return true;
      }
    }
    return false;
  }

  /** Returns a promise of all that is known of a result. */
  async result(number) {
    return JSON.parse(await this.results.text(number));
  }
}

/** Returns where the whole results of a run are found, and one line of each answer. */
export function lineStores(source, number, starts, count) {
  return {
    results: new LineStore(source, `r${number}-`, starts.results, count),
    snippets: new LineStore(source, `s${number}-`, starts.snippets, count, MAX_LINE_BLOCKS),
  };
}

/** All the rows of a page, and its one or two runs. `run` is the one that the table is about: the newer. */
export class Model {
  static async load(source) {
    const { meta } = source;
    const [ids, lengths] = await Promise.all([source.block("ids"), source.block("id-lengths")]);
    const runs = await Promise.all(meta.runs.map(async (each, number) => {
      const names = Object.keys(TYPES);
      const blocks = await Promise.all(names.map((name) => source.block(`${name}-${number}`)));
      const columns = Object.fromEntries(names.map((name, at) => [name, typed(blocks[at], TYPES[name])]));
      return new Run(each, number, lineStores(source, number, each.blocks, each.results), columns, meta.rows);
    }));
    return new Model(meta, new TextDecoder().decode(ids), typed(lengths, Uint32Array), runs);
  }

  constructor(meta, ids, lengths, runs) {
    this.meta = meta;
    this.count = meta.rows;
    this.ids = ids;
    this.idStarts = runningSums(lengths);
    this.runs = runs;
    this.run = runs.at(-1);
    this.base = runs.length > 1 ? runs[0] : null;
    this.orders = new Map();
    if (this.base) this.compareRows();
  }

  id(row) {
    return this.ids.slice(this.idStarts[row], this.idStarts[row + 1]);
  }

  /** Returns the run to show a row by: the newer, unless it has no result there. */
  runOf(row) {
    return this.base && this.run.rowStates[row] === ABSENT ? this.base : this.run;
  }

  state(row) {
    return this.runOf(row).rowStates[row];
  }

  score(row) {
    return this.runOf(row).rowScores[row];
  }

  dataset(row) {
    const run = this.runOf(row);
    return run.meta.datasets[run.datasets[run.resultsOf(row)[0]]];
  }

  target(row) {
    const run = this.runOf(row);
    return run.meta.targets[run.targets[run.resultsOf(row)[0]]];
  }

  compareRows() {
    this.deltas = new Float64Array(this.count).fill(NaN);
    this.flips = new Uint8Array(this.count).fill(SAME);
    for (let row = 0; row < this.count; row++) {
      const before = this.base.rowStates[row], after = this.run.rowStates[row];
      if (before === ABSENT || after === ABSENT) {
        this.flips[row] = before === ABSENT ? ONLY_B : ONLY_A;
        continue;
      }
      this.deltas[row] = Math.round((this.run.rowScores[row] - this.base.rowScores[row]) * 1e12) / 1e12;
      if ((before === PASS) !== (after === PASS)) this.flips[row] = before === PASS ? BROKEN : FIXED;
    }
  }

  /** Tells whether another row may have the same id; hashes are compared, so that it is rarely true in vain. */
  mayShareId(row) {
    if (!this.shared) {
      const hashes = Uint32Array.from({ length: this.count }, (_, each) => this.hashOfId(each)).sort();
      this.shared = new Set(hashes.filter((hash, at) => hash === hashes[at - 1]));
    }
    return this.shared.size > 0 && this.shared.has(this.hashOfId(row));
  }

  hashOfId(row) {
    let hash = 2166136261;
    for (let at = this.idStarts[row]; at < this.idStarts[row + 1]; at++) hash = Math.imul(hash ^ this.ids.charCodeAt(at), 16777619);
    return hash >>> 0;
  }

  /** Returns the rows that have an id: one, unless datasets or targets share it. */
  rowsWithId(id) {
    const found = [];
    for (let at = this.ids.indexOf(id); at >= 0; at = this.ids.indexOf(id, at + 1)) {
      const row = lastAtMost(this.idStarts, at, this.count);
      if (this.idStarts[row] === at && this.idStarts[row + 1] - at === id.length) found.push(row);
      if (!id) break;
    }
    return found;
  }

  /** Returns all rows by a column, each order computed once; ties stand as in the results file. */
  order(column, descending) {
    const name = `${descending ? "-" : ""}${column}`;
    if (!this.orders.has(name)) this.orders.set(name, this.sort(column, descending));
    return this.orders.get(name);
  }

  sort(column, descending) {
    const rows = Uint32Array.from({ length: this.count }, (_, row) => row);
    const sign = descending ? -1 : 1;
    const keys = this.keys(column);
    if (Array.isArray(keys)) {
      return rows.sort((a, b) => (keys[a] < keys[b] ? -sign : keys[a] > keys[b] ? sign : a - b));
    }
    return sortByNumbers(keys, descending);
  }

  keys(column) {
    const each = (compute) => Float64Array.from({ length: this.count }, (_, row) => compute(row));
    switch (column) {
      case "id": return Array.from({ length: this.count }, (_, row) => this.id(row));
      case "score": return each((row) => this.score(row));
      case "before": return this.base ? this.base.rowScores : this.run.rowScores;
      case "change": return this.deltas ?? this.run.rowScores;
      case "duration": return each((row) => this.runOf(row).rowDurations[row]);
      case "cost": return each((row) => this.runOf(row).rowCosts[row]);
      default: return each((row) => this.worst(row));
    }
  }

  /** Returns a number by which what failed comes first; of two runs, what broke comes first and then what got worse. */
  worst(row) {
    if (!this.base) return this.state(row) * 4 + this.score(row);
    const flip = this.flips[row];
    return flip * 8 + (flip === SAME ? this.deltas[row] : flip === BROKEN ? this.deltas[row] : -this.deltas[row] || 0);
  }
}

/**
 * Returns rows by ascending or descending numbers; what is not known comes last, either way. The place of a number in
 * their range and its row are packed into one number each, which browsers sort ten times faster than by a function.
 */
function sortByNumbers(keys, descending) {
  const rowBits = Math.max(1, Math.ceil(Math.log2(keys.length + 1)));
  const rowSpan = 2 ** rowBits, steps = 2 ** (52 - rowBits) - 2;
  let low = Infinity, high = -Infinity;
  for (const key of keys) {
    if (key < low) low = key;
    if (key > high) high = key;
  }
  const room = high - low || 1;
  const packed = Float64Array.from(keys, (key, row) => {
    const share = (key - low) / room;
    const step = Number.isNaN(key) ? steps + 1 : Math.round((descending ? 1 - share : share) * steps);
    return step * rowSpan + row;
  }).sort();
  return Uint32Array.from(packed, (value) => value % rowSpan);
}

function typed(bytes, type) {
  return new type(bytes.buffer, 0, Math.floor(bytes.byteLength / type.BYTES_PER_ELEMENT));
}

function runningSums(counts) {
  const sums = new Uint32Array(counts.length + 1);
  for (let at = 0; at < counts.length; at++) sums[at + 1] = sums[at] + counts[at];
  return sums;
}

/** Returns the last place in ascending numbers whose number is at most `value`. */
export function lastAtMost(numbers, value, count) {
  let low = 0, high = count - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (numbers[middle] <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}

function camel(name) {
  return name.replace(/-(\w)/g, (_, letter) => letter.toUpperCase());
}
