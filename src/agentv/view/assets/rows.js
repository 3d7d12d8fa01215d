// @ts-check
/** Assigns row numbers to cases as results arrive: a hash table in typed arrays. */

/** @import { NumberArray, NumberArrayType } from "./columns.js" */

const EMPTY = 0;
const FIRST_SLOTS = 4096;
const FIRST_CAPACITY = 1024;

/** A growable array of numbers. The caller keeps count of the numbers in use. */
export class GrowingArray {
  /** @param {NumberArrayType} type */
  constructor(type) {
    this.type = type;
    /** @type {NumberArray} */
    this.data = new type(FIRST_CAPACITY);
  }

  /**
   * Write numbers at an index and discard all numbers after it.
   * @param {number} at
   * @param {ArrayLike<number>} values
   */
  write(at, values) {
    const end = at + values.length;
    if (end > this.data.length) {
      const larger = new this.type(Math.max(this.data.length * 2, end));
      larger.set(this.data.subarray(0, at));
      this.data = larger;
    }
    this.data.set(values, at);
  }

  /**
   * Write one number.
   * @param {number} at
   * @param {number} value
   */
  set(at, value) {
    if (at < this.data.length) this.data[at] = value;
    else this.write(at, [value]);
  }

  /**
   * Return the first numbers.
   * @param {number} length
   */
  view(length) {
    return this.data.subarray(0, length);
  }
}

/** The rows of a page, shared by its runs. A row is identified by a 64-bit hash. */
export class RowTable {
  constructor() {
    this.count = 0;
    /** The ids of all rows, joined. */
    this.ids = "";
    this.lengths = new GrowingArray(Uint32Array);
    /** The two halves of the hash of each row. */
    this.keys = new GrowingArray(Uint32Array);
    /** The hash table: the number of a row plus 1, or `EMPTY`. */
    this.slots = new Uint32Array(FIRST_SLOTS);
  }

  /** The lengths of the ids of all rows. */
  get idLengths() {
    return /** @type {Uint32Array} */ (this.lengths.view(this.count));
  }

  /**
   * Return the row of each result of a chunk, adding rows that are new.
   * @param {Uint32Array} keys two numbers per result
   * @param {string} ids of all results, joined
   * @param {Uint32Array} lengths of the ids
   */
  rowsOf(keys, ids, lengths) {
    const rows = new Uint32Array(lengths.length);
    const added = [];
    let start = 0;
    for (let result = 0; result < rows.length; result++) {
      const countBefore = this.count;
      const row = this.#rowOf(keys[2 * result], keys[2 * result + 1]);
      const end = start + lengths[result];
      const isNew = row === countBefore;
      if (isNew) {
        this.lengths.set(row, lengths[result]);
        added.push(ids.slice(start, end));
      }
      rows[result] = row;
      start = end;
    }
    this.ids += added.join("");
    return rows;
  }

  /**
   * @param {number} low
   * @param {number} high
   */
  #rowOf(low, high) {
    if (this.count * 2 >= this.slots.length) this.#enlarge();
    const slot = this.#slotOf(low, high);
    const found = this.slots[slot];
    if (found !== EMPTY) return found - 1;
    const row = this.count;
    this.keys.set(2 * row, low);
    this.keys.set(2 * row + 1, high);
    this.count++;
    this.slots[slot] = this.count;
    return row;
  }

  /**
   * Return the slot of a key, or the empty slot where it belongs.
   * @param {number} low
   * @param {number} high
   */
  #slotOf(low, high) {
    const keys = this.keys.data;
    const last = this.slots.length - 1;
    let slot = (low ^ Math.imul(high, 0x9e3779b1)) & last;
    while (this.slots[slot] !== EMPTY) {
      const row = this.slots[slot] - 1;
      if (keys[2 * row] === low && keys[2 * row + 1] === high) break;
      slot = (slot + 1) & last;
    }
    return slot;
  }

  #enlarge() {
    const keys = this.keys.data;
    this.slots = new Uint32Array(this.slots.length * 2);
    for (let row = 0; row < this.count; row++) {
      this.slots[this.#slotOf(keys[2 * row], keys[2 * row + 1])] = row + 1;
    }
  }
}
