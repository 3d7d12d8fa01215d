/**
 * Results files that the viewer's server reads, and that may still grow -> models for the page.
 *
 * The page asks for the index again and again, at once as long as there is more to read and every second or so after
 * that. Each answer is small and soon there; no connection is held open, and nothing happens when nobody looks.
 */

import { ask } from "./ask.js";
import { lineStores, Model, Run, TYPES } from "./model.js";
import { Growing } from "./rows.js";

const HEAD_BYTES = 16;
/** The columns as they stand in a chunk; those of evaluators have an entry for each score of one. */
const COLUMNS = Object.entries(TYPES).filter(([name]) => name !== "rows").map(([name, type]) => ({ name, type, isPart: name.startsWith("evaluator-") && name !== "evaluator-counts" }));

/** One results file, as far as it was read. */
export class LiveRun {
  constructor(id, number, table, byIdOnly) {
    Object.assign(this, { id, number, table, byIdOnly, generation: 0, count: 0, starts: [0], partStarts: [0], complete: 0 });
    this.columns = Object.fromEntries(Object.entries(TYPES).map(([name, type]) => [name, new Growing(type)]));
    this.stores = lineStores({ block: (name) => this.block(name) }, number, { results: [], snippets: [] }, 0);
    this.state = { datasets: [], targets: [], evaluators: [], results: 0, size: 0, read: 0 };
    this.changedFrom = 0;
  }

  /** Fetches what is new; returns whether there is anything. */
  async fetch() {
    const answer = await ask(`/api/run/${this.id}/index?generation=${this.generation}&from=${this.complete}`);
    const bytes = await answer.arrayBuffer();
    const length = new DataView(bytes).getUint32(0, true);
    const state = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)));
    if (state.gone || (this.generation && state.generation !== this.generation)) {
      this.state = { ...this.state, gone: state.gone, change: state.change || (state.gone ? "" : "replaced"), is_behind: false };
      return false;
    }
    const before = this.count;
    this.generation = state.generation;
    this.state = state;
    this.add(bytes, 4 + length, state);
    return this.count > before;
  }

  add(bytes, start, { first, chunks, closed }) {
    let at = start;
    for (let chunk = first; chunk < first + chunks; chunk++) at = this.addChunk(bytes, at, chunk);
    this.complete = Math.min(first + chunks, closed);
    for (const store of Object.values(this.stores)) store.grow(this.starts.slice(0, -1), this.count, first);
  }

  /** Adds a chunk in the place where it belongs, over what was known of it before; returns where the next begins. */
  addChunk(bytes, at, chunk) {
    const [results, parts, idBytes, size] = new Uint32Array(bytes.slice(at, at + HEAD_BYTES));
    let place = at + HEAD_BYTES;
    const take = (type, count) => new type(bytes.slice(place, (place += count * type.BYTES_PER_ELEMENT)));
    const keys = take(Uint32Array, 2 * results), lengths = take(Uint32Array, results), ids = new TextDecoder().decode(take(Uint8Array, idBytes));
    const start = this.starts[chunk], partStart = this.partStarts[chunk];
    const found = {};
    for (const { name, type, isPart } of COLUMNS) {
      found[name] = take(type, isPart ? parts : results);
      this.columns[name].write(isPart ? partStart : start, found[name]);
    }
    if (!this.byIdOnly) for (let each = 0; each < results; each++) keys[2 * each + 1] ^= Math.imul(found.datasets[each] + 1, 0x85ebca6b) ^ Math.imul(found.targets[each] + 1, 0xc2b2ae35);
    const rows = this.table.rowsOf(keys, ids, lengths);
    this.columns.rows.write(start, rows);
    this.starts.length = this.partStarts.length = chunk + 1;
    this.starts.push(start + results);
    this.partStarts.push(partStart + parts);
    this.count = start + results;
    this.partCount = partStart + parts;
    return at + HEAD_BYTES + size;
  }

  async block(name) {
    const [kind, chunk] = [name[0] === "r" ? "results" : "snippets", name.split("-")[1]];
    const answer = await ask(`/api/run/${this.id}/${kind}/${chunk}?generation=${this.generation}`);
    return new Uint8Array(await answer.arrayBuffer());
  }

  /** Tells whether anything has come since the last call of `takeChanged`. */
  get hasChanged() {
    return this.count > this.changedFrom;
  }

  /** Adds to a byte for each row whether it has results that have come since the last call. */
  takeChanged(marks) {
    const rows = this.columns.rows.view(this.count);
    for (let at = this.changedFrom; at < this.count; at++) marks[rows[at]] = 1;
    this.changedFrom = this.count;
  }

  /** Returns the run as the page's modules know it; `meta` may still lack words. */
  run(meta) {
    const length = (name) => (COLUMNS.find((each) => each.name === name)?.isPart ? this.partCount : this.count);
    const columns = Object.fromEntries(Object.keys(TYPES).map((name) => [name, this.columns[name].view(length(name))]));
    return new Run(meta, this.number, this.stores, columns, this.table.count);
  }
}

/** Returns the model of a page of these runs. */
export function modelOf(runs, table, meta) {
  return new Model({ ...meta, rows: table.count }, table.ids, table.lengths.view(table.count), runs);
}
