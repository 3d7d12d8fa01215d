// @ts-check
/**
 * The data source of a page. A report contains compressed data; the viewer fetches its data.
 */

/** @import { EmbeddedPageMeta } from "../contract" */

import { pause } from "./dom.js";

/**
 * Returns the bytes of a column, or of some results.
 * @typedef {(name: string) => Promise<Uint8Array<ArrayBuffer>>} ReadBlock
 */

const KEPT_BLOCKS = 24;
const POLL_MILLISECONDS = 20;
const LINE_FEED = 10;

/** Return the metadata that is embedded in a page. */
export function embeddedMeta() {
  const element = /** @type {HTMLElement} */ (document.getElementById("meta"));
  return /** @type {EmbeddedPageMeta} */ (JSON.parse(element.textContent));
}

/**
 * Return an embedded block of a page.
 * @type {ReadBlock}
 */
export async function embeddedBlock(name) {
  const element = await arrivedElement(name);
  return inflate(decodeBase64(element.textContent));
}

/**
 * Wait for an element that the browser may not have parsed yet. It is complete once another element
 * follows it.
 * @param {string} id
 */
async function arrivedElement(id) {
  for (;;) {
    const element = document.getElementById(id);
    const isLoaded = document.readyState !== "loading";
    if (element && (element.nextElementSibling || isLoaded)) return element;
    if (!element && isLoaded) throw new Error(`this report is truncated: ${id} is missing`);
    await pause(POLL_MILLISECONDS);
  }
}

/**
 * @param {string} text
 * @returns {Uint8Array<ArrayBuffer>}
 */
function decodeBase64(text) {
  // recent browsers have a fast function that TypeScript's library may lack
  const fromBase64 = /** @type {any} */ (Uint8Array).fromBase64;
  if (fromBase64) return fromBase64.call(Uint8Array, text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) {
    bytes[at] = binary.charCodeAt(at);
  }
  return bytes;
}

/** @param {Uint8Array<ArrayBuffer>} bytes */
async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * A requested block. `lines` is set once it has arrived.
 * @typedef {object} KeptBlock
 * @property {Promise<Lines>} promise
 * @property {Lines | null} lines
 */

/** Returns single lines (results, or the first lines of answers) from blocks of lines. */
export class LineStore {
  /**
   * @param {ReadBlock} readBlock
   * @param {string} prefix what the names of the blocks start with
   * @param {number[]} starts the number of the first line of each block
   * @param {number} count the number of lines
   * @param {number} [kept] how many blocks are kept in memory
   */
  constructor(readBlock, prefix, starts, count, kept = KEPT_BLOCKS) {
    this.readBlock = readBlock;
    this.prefix = prefix;
    this.starts = starts;
    this.count = count;
    this.kept = kept;
    /** @type {Map<number, KeptBlock>} the block that was used last comes last */
    this.blocks = new Map();
  }

  /**
   * Return the number of the block that contains a line.
   * @param {number} line
   */
  blockOf(line) {
    return lastAtMost(this.starts, line, this.starts.length);
  }

  /**
   * Return a promise of the lines of a block.
   * @param {number} block
   */
  lines(block) {
    const kept = this.blocks.get(block) ?? this.#read(block);
    this.blocks.delete(block);
    this.blocks.set(block, kept);
    for (const oldest of this.blocks.keys()) {
      if (this.blocks.size <= this.kept) break;
      this.blocks.delete(oldest);
    }
    return kept.promise;
  }

  /**
   * @param {number} block
   * @returns {KeptBlock}
   */
  #read(block) {
    const promise = this.readBlock(`${this.prefix}${block}`).then((bytes) => new Lines(bytes));
    /** @type {KeptBlock} */
    const kept = { promise, lines: null };
    promise.then(
      (lines) => {
        kept.lines = lines;
      },
      () => this.blocks.delete(block),
    );
    return kept;
  }

  /**
   * Register new lines. Block number `changed` and later blocks are read again.
   * @param {number[]} starts
   * @param {number} count
   * @param {number} changed
   */
  grow(starts, count, changed) {
    this.starts = starts;
    this.count = count;
    for (const block of this.blocks.keys()) {
      if (block >= changed) this.blocks.delete(block);
    }
  }

  /**
   * Return a line if its block is in memory, otherwise undefined.
   * @param {number} line
   */
  peek(line) {
    const block = this.blockOf(line);
    return this.blocks.get(block)?.lines?.text(line - this.starts[block]);
  }

  /**
   * Return a line.
   * @param {number} line
   */
  async text(line) {
    const block = this.blockOf(line);
    const lines = await this.lines(block);
    return lines.text(line - this.starts[block]);
  }
}

/** The lines of a block. A line is decoded on demand. */
export class Lines {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    /** @type {number[]} where each line ends */
    this.ends = [];
    for (let at = bytes.indexOf(LINE_FEED); at >= 0; at = bytes.indexOf(LINE_FEED, at + 1)) {
      this.ends.push(at);
    }
    this.ends.push(bytes.length);
  }

  /** @param {number} number */
  text(number) {
    const start = number === 0 ? 0 : this.ends[number - 1] + 1;
    return new TextDecoder().decode(this.bytes.subarray(start, this.ends[number]));
  }

  /** Return all lines as one text, separated by line feeds. */
  whole() {
    return new TextDecoder().decode(this.bytes);
  }
}

/**
 * Return the last index in ascending numbers whose number is at most `value`, or 0.
 * @param {ArrayLike<number>} numbers
 * @param {number} value
 * @param {number} count how many of the numbers to search
 */
export function lastAtMost(numbers, value, count) {
  let low = 0;
  let high = count - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (numbers[middle] <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}
