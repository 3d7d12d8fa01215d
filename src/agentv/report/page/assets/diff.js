// @ts-check
/** Computes the diff of two texts. */

/**
 * @typedef {object} DiffPart
 * @property {"same" | "removed" | "added"} kind
 * @property {string} text
 */

const WORD = /\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu;
const LINE = /[^\n]*\n|[^\n]+$/g;
const MAX_PARTS = 60_000;
/** Longer texts are not split into words. */
const MAX_WORD_CHARACTERS = MAX_PARTS * 20;
const MAX_EDITS = 1200;

/**
 * Return the diff of two texts: by words if they are short enough, otherwise by lines.
 * @param {string} before
 * @param {string} after
 */
export function diffTexts(before, after) {
  const canSplitWords = before.length + after.length <= MAX_WORD_CHARACTERS;
  for (const pattern of canSplitWords ? [WORD, LINE] : [LINE]) {
    const first = before.match(pattern) ?? [];
    const second = after.match(pattern) ?? [];
    if (first.length + second.length > MAX_PARTS) continue;
    const parts = diffParts(first, second);
    if (parts) return tidy(parts);
  }
  return tidy([
    { kind: "removed", text: before },
    { kind: "added", text: after },
  ]);
}

/**
 * Return the shortest edit script, or null if there are too many edits to be useful.
 * @param {string[]} first
 * @param {string[]} second
 * @returns {DiffPart[] | null}
 */
function diffParts(first, second) {
  const shorter = Math.min(first.length, second.length);
  let start = 0;
  while (start < shorter && first[start] === second[start]) start++;
  let end = 0;
  while (end < shorter - start && first.at(-1 - end) === second.at(-1 - end)) end++;
  const middle = findEdits(
    first.slice(start, first.length - end),
    second.slice(start, second.length - end),
  );
  if (!middle) return null;
  return [
    { kind: "same", text: first.slice(0, start).join("") },
    ...middle,
    { kind: "same", text: first.slice(first.length - end).join("") },
  ];
}

/**
 * Find the fewest edits from a to b (Myers' algorithm), or null if it takes more than `MAX_EDITS`.
 *
 * `reach[k]` is the furthest position in `a` on diagonal k with the edits so far; k is the number
 * of removed parts minus the number of added ones.
 * @param {string[]} a
 * @param {string[]} b
 */
function findEdits(a, b) {
  const most = Math.min(a.length + b.length, MAX_EDITS);
  const zero = most + 1; // where diagonal 0 is in `reach`
  const reach = new Int32Array(2 * most + 3);
  /** @type {Int32Array[]} what `reach` was after each number of edits */
  const steps = [];
  for (let edits = 0; edits <= most; edits++) {
    for (let k = -edits; k <= edits; k += 2) {
      const below = reach[zero + k + 1];
      const beside = reach[zero + k - 1];
      const isAddition = k === -edits || (k !== edits && beside < below);
      let x = isAddition ? below : beside + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) {
        x++;
        y++;
      }
      reach[zero + k] = x;
      if (x >= a.length && y >= b.length) return trackBack(a, b, steps, edits);
    }
    steps.push(reach.slice(most - edits, most + edits + 3));
  }
  return null;
}

/**
 * Return the edits that lead to the end.
 * @param {string[]} a
 * @param {string[]} b
 * @param {Int32Array[]} steps
 * @param {number} last the number of edits
 */
function trackBack(a, b, steps, last) {
  /** @type {DiffPart[]} */
  const found = [];
  let x = a.length;
  let y = b.length;
  for (let edits = last; edits > 0; edits--) {
    const before = steps[edits - 1]; // the diagonals from -edits to edits
    /** @param {number} k */
    const reached = (k) => before[k + edits] ?? 0;
    const k = x - y;
    const isAddition = k === -edits || (k !== edits && reached(k - 1) < reached(k + 1));
    const fromK = isAddition ? k + 1 : k - 1;
    const fromX = reached(fromK);
    const fromY = fromX - fromK;
    const editX = isAddition ? fromX : fromX + 1;
    while (x > editX && y > fromY) {
      x--;
      y--;
      found.push({ kind: "same", text: a[x] });
    }
    if (isAddition) found.push({ kind: "added", text: b[y - 1] });
    else found.push({ kind: "removed", text: a[x - 1] });
    x = fromX;
    y = fromY;
  }
  while (x > 0) {
    x--;
    found.push({ kind: "same", text: a[x] });
  }
  return found.reverse();
}

/**
 * Join neighbors of one kind. Removed text comes before added text, and white space between two
 * edits becomes part of both.
 * @param {DiffPart[]} parts
 */
function tidy(parts) {
  /** @type {DiffPart[]} */
  const joined = [];
  let removed = "";
  let added = "";
  const flush = () => {
    if (removed) joined.push({ kind: "removed", text: removed });
    if (added) joined.push({ kind: "added", text: added });
    removed = "";
    added = "";
  };
  for (const [at, { kind, text }] of parts.entries()) {
    if (kind === "removed") {
      removed += text;
    } else if (kind === "added") {
      added += text;
    } else if ((removed || added) && /^\s+$/.test(text) && isEdit(parts[at + 1])) {
      removed += text;
      added += text;
    } else if (text) {
      flush();
      const last = joined.at(-1);
      if (last?.kind === "same") last.text += text;
      else joined.push({ kind, text });
    }
  }
  flush();
  return joined;
}

/** @param {DiffPart | undefined} part */
function isEdit(part) {
  return part !== undefined && part.kind !== "same";
}
