/** Two texts -> the words that only one of them has. */

const WORD = /\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu;
const LINE = /[^\n]*\n|[^\n]+$/g;
const MOST_PARTS = 60_000;
const MOST_EDITS = 1200;

/** Returns parts `{kind, text}`, where kind is "same", "removed" or "added"; words if that is feasible, else lines. */
export function diffTexts(before, after) {
  for (const pattern of [WORD, LINE]) {
    if (before.length + after.length > MOST_PARTS * 20 && pattern === WORD) continue;
    const first = before.match(pattern) ?? [], second = after.match(pattern) ?? [];
    if (first.length + second.length > MOST_PARTS) continue;
    const found = diffParts(first, second);
    if (found) return tidy(found);
  }
  return tidy([{ kind: "removed", text: before }, { kind: "added", text: after }]);
}

/** Finds the fewest edits (Myers); null if there are too many to be worth showing. */
function diffParts(first, second) {
  let start = 0, end = 0;
  while (start < first.length && start < second.length && first[start] === second[start]) start++;
  while (end < first.length - start && end < second.length - start && first.at(-1 - end) === second.at(-1 - end)) end++;
  const a = first.slice(start, first.length - end), b = second.slice(start, second.length - end);
  const middle = edits(a, b);
  if (!middle) return null;
  const same = (parts) => (parts.length ? [{ kind: "same", text: parts.join("") }] : []);
  return [...same(first.slice(0, start)), ...middle, ...same(end ? first.slice(-end) : [])];
}

function edits(a, b) {
  const most = Math.min(a.length + b.length, MOST_EDITS);
  const steps = [];
  let reach = new Int32Array(2 * most + 3);
  for (let d = 0; d <= most; d++) {
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && reach[most + k - 1 + 1] < reach[most + k + 1 + 1]);
      let x = down ? reach[most + k + 1 + 1] : reach[most + k - 1 + 1] + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) { x++; y++; }
      reach[most + k + 1] = x;
      if (x >= a.length && y >= b.length) {
        steps.push(reach.slice(most - d, most + d + 3));
        return trackBack(a, b, steps, d);
      }
    }
    steps.push(reach.slice(most - d, most + d + 3));
  }
  return null;
}

function trackBack(a, b, steps, last) {
  const found = [];
  let x = a.length, y = b.length;
  for (let d = last; d > 0; d--) {
    const before = steps[d - 1]; // holds the diagonals from -d to d; diagonal k is at k + d
    const read = (k) => before[k + d] ?? 0;
    const k = x - y;
    const down = k === -d || (k !== d && read(k - 1) < read(k + 1));
    const fromK = down ? k + 1 : k - 1;
    const fromX = read(fromK), fromY = fromX - fromK;
    while (x > fromX && y > fromY && x > (down ? fromX : fromX + 1)) { found.push({ kind: "same", text: a[--x] }); y--; }
    if (down) found.push({ kind: "added", text: b[--y] });
    else found.push({ kind: "removed", text: a[--x] });
    x = fromX;
    y = fromY;
  }
  while (x > 0) found.push({ kind: "same", text: a[--x] });
  return found.reverse();
}

/** Joins neighbours of one kind; removed comes before added. */
function tidy(parts) {
  const joined = [];
  let removed = "", added = "";
  const flush = () => {
    if (removed) joined.push({ kind: "removed", text: removed });
    if (added) joined.push({ kind: "added", text: added });
    removed = added = "";
  };
  for (const [at, { kind, text }] of parts.entries()) {
    const between = kind === "same" && /^\s+$/.test(text) && (removed || added) && parts[at + 1] && parts[at + 1].kind !== "same";
    if (kind === "removed") removed += text;
    else if (kind === "added") added += text;
    else if (between) { removed += text; added += text; }
    else {
      flush();
      if (joined.at(-1)?.kind === "same") joined.at(-1).text += text;
      else if (text) joined.push({ kind, text });
    }
  }
  flush();
  return joined;
}
