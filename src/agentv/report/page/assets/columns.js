// @ts-check
/** The columns of a run: arrays of numbers, as Python writes them. */

/** @typedef {Uint8Array | Uint16Array | Uint32Array | Float64Array} NumberArray */

/**
 * @typedef {{
 *   new (length: number): NumberArray,
 *   new (buffer: ArrayBufferLike, offset?: number, length?: number): NumberArray,
 *   BYTES_PER_ELEMENT: number,
 * }} NumberArrayType
 */

/**
 * The columns of a run: one number per result, or one per score of an evaluator.
 * @typedef {object} Columns
 * @property {Uint32Array} rows the row of the page that a result belongs to
 * @property {Float64Array} scores
 * @property {Uint8Array} flags
 * @property {Float64Array} durations in milliseconds; NaN if unknown
 * @property {Float64Array} costs in dollars; NaN if unknown
 * @property {Uint16Array} trials the number of the trial; 0 if the results have none
 * @property {Uint32Array} datasets the number of the dataset's name
 * @property {Uint32Array} targets the number of the target's name
 * @property {Uint16Array} evaluatorCounts how many evaluators scored the result
 * @property {Uint32Array} evaluatorNames the number of the evaluator's name
 * @property {Float64Array} evaluatorScores NaN if the evaluator does not apply
 * @property {Uint8Array} evaluatorFlags
 */

/**
 * @typedef {object} ColumnKind
 * @property {keyof Columns} name
 * @property {string} block the name that Python gives to the column
 * @property {NumberArrayType} type
 * @property {boolean} isPerEvaluator whether there is a number per score of an evaluator
 */

/** @type {ColumnKind[]} */
export const COLUMNS = [
  column("rows", Uint32Array),
  column("scores", Float64Array),
  column("flags", Uint8Array),
  column("durations", Float64Array),
  column("costs", Float64Array),
  column("trials", Uint16Array),
  column("datasets", Uint32Array),
  column("targets", Uint32Array),
  column("evaluatorCounts", Uint16Array),
  column("evaluatorNames", Uint32Array, true),
  column("evaluatorScores", Float64Array, true),
  column("evaluatorFlags", Uint8Array, true),
];

/**
 * @param {keyof Columns} name
 * @param {NumberArrayType} type
 * @returns {ColumnKind}
 */
function column(name, type, isPerEvaluator = false) {
  const block = name.replace(/[A-Z]/, (letter) => `-${letter.toLowerCase()}`);
  return { name, block, type, isPerEvaluator };
}

/**
 * Return the columns that `read` returns for each kind.
 * @param {(kind: ColumnKind) => NumberArray} read
 * @returns {Columns}
 */
export function readColumns(read) {
  const columns = Object.fromEntries(COLUMNS.map((kind) => [kind.name, read(kind)]));
  return /** @type {any} */ (columns);
}

/**
 * Return the running sums: for each index the sum of the numbers before it, then the total.
 * @param {Uint16Array | Uint32Array} counts
 */
export function runningSums(counts) {
  const sums = new Uint32Array(counts.length + 1);
  for (let at = 0; at < counts.length; at++) {
    sums[at + 1] = sums[at] + counts[at];
  }
  return sums;
}
