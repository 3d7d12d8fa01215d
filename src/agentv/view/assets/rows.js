/** Numbers for cases, given out as results arrive: a hash table in typed arrays, a few bytes for each case. */

const EMPTY = 0;

/** An array of numbers that grows; only its view of a length is handed out. */
export class Growing {
  constructor(type, capacity = 1024) {
    this.type = type;
    this.data = new type(capacity);
  }

  /** Writes these numbers at a place; what stood there and after it is forgotten by whoever counts. */
  write(at, values) {
    if (at + values.length > this.data.length) {
      const larger = new this.type(Math.max(this.data.length * 2, at + values.length));
      larger.set(this.data.subarray(0, at));
      this.data = larger;
    }
    this.data.set(values, at);
  }

  /** Writes one number at a place. */
  set(at, value) {
    if (at < this.data.length) this.data[at] = value;
    else this.write(at, [value]);
  }

  view(length) {
    return this.data.subarray(0, length);
  }
}

/** The rows of a page. A row is known by 64 bits of hash; the runs of a page share the rows. */
export class RowTable {
  constructor() {
    this.count = 0;
    this.ids = "";
    this.lengths = new Growing(Uint32Array);
    this.keys = new Growing(Uint32Array);
    this.slots = new Uint32Array(4096);
  }

  /** Returns the row of each result of a chunk; `keys` are pairs of numbers, `text` has all the ids. */
  rowsOf(keys, text, lengths) {
    const rows = new Uint32Array(lengths.length), added = [];
    let at = 0;
    for (let number = 0; number < rows.length; number++) {
      const before = this.count;
      const row = (rows[number] = this.row(keys[2 * number], keys[2 * number + 1]));
      if (row === before) {
        this.lengths.set(row, lengths[number]);
        added.push(text.slice(at, at + lengths[number]));
      }
      at += lengths[number];
    }
    this.ids += added.join("");
    return rows;
  }

  row(low, high) {
    if (this.count * 2 >= this.slots.length) this.enlarge();
    const slot = this.slotOf(low, high), found = this.slots[slot];
    if (found !== EMPTY) return found - 1;
    this.keys.set(2 * this.count, low);
    this.keys.set(2 * this.count + 1, high);
    this.slots[slot] = ++this.count;
    return this.count - 1;
  }

  slotOf(low, high) {
    const last = this.slots.length - 1, keys = this.keys.data;
    let slot = (low ^ Math.imul(high, 0x9e3779b1)) & last;
    for (let row = this.slots[slot]; row !== EMPTY && !(keys[2 * row - 2] === low && keys[2 * row - 1] === high); row = this.slots[slot]) slot = (slot + 1) & last;
    return slot;
  }

  enlarge() {
    const keys = this.keys.data;
    this.slots = new Uint32Array(this.slots.length * 2);
    for (let row = 0; row < this.count; row++) this.slots[this.slotOf(keys[2 * row], keys[2 * row + 1])] = row + 1;
  }
}
