/**
 * Where a page gets its data from. A source has `meta` (what is shown at once) and `block(name)`, which gives the bytes
 * of a column or of some results. Here they stand in the page itself, compressed; a viewer fetches them.
 */


const KEPT_BLOCKS = 24;

/** Returns the source of a page that carries its own data. */
export function embeddedSource() {
  const meta = JSON.parse(document.getElementById("meta").textContent);
  return { meta, block: async (name) => inflate(decodeBase64((await arrived(name)).textContent)) };
}

/** Waits for an element that the browser may not have read yet; it is whole when another stands behind it. */
async function arrived(id) {
  for (;;) {
    const element = document.getElementById(id);
    if (element && (element.nextElementSibling || document.readyState !== "loading")) return element;
    if (!element && document.readyState !== "loading") throw new Error(`this report is cut off: ${id} is missing`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Gives single lines (results, or one line of each answer) out of blocks of them; a few blocks are kept. */
export class LineStore {
  constructor(source, prefix, starts, count, kept = KEPT_BLOCKS) {
    Object.assign(this, { source, prefix, starts, count, kept });
    this.blocks = new Map();
  }

  /** Returns the number of the block that has a line. */
  blockOf(line) {
    let low = 0, high = this.starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.starts[middle] <= line) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Returns a promise of the lines of a block. */
  lines(block) {
    let found = this.blocks.get(block);
    this.blocks.delete(block);
    found ??= this.source.block(`${this.prefix}${block}`).then((bytes) => new Lines(bytes));
    this.blocks.set(block, found);
    found.then((lines) => (found.ready = lines), () => this.blocks.delete(block));
    for (const oldest of this.blocks.keys()) {
      if (this.blocks.size <= this.kept) break;
      this.blocks.delete(oldest);
    }
    return found;
  }

  /** Takes note that there are more lines; a block that has grown is fetched anew. */
  grow(starts, count, changed) {
    Object.assign(this, { starts, count });
    for (const block of this.blocks.keys()) if (block >= changed) this.blocks.delete(block);
  }

  /** Returns a line if its block is at hand, else undefined. */
  peek(line) {
    const block = this.blockOf(line);
    return this.blocks.get(block)?.ready?.text(line - this.starts[block]);
  }

  async text(line) {
    const block = this.blockOf(line);
    return (await this.lines(block)).text(line - this.starts[block]);
  }
}

/** The lines of a block; each becomes a string only when it is asked for. */
class Lines {
  constructor(bytes) {
    this.bytes = bytes;
    this.ends = [];
    for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, at + 1)) this.ends.push(at);
    this.ends.push(bytes.length);
  }

  get length() {
    return this.ends.length;
  }

  text(number) {
    const start = number === 0 ? 0 : this.ends[number - 1] + 1;
    return new TextDecoder().decode(this.bytes.subarray(start, this.ends[number]));
  }

  /** Returns all lines as one text, with line feeds between them. */
  whole() {
    return new TextDecoder().decode(this.bytes);
  }
}

