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
  { name: "rows", block: "rows", type: Uint32Array, isPerEvaluator: false },
  { name: "scores", block: "scores", type: Float64Array, isPerEvaluator: false },
  { name: "flags", block: "flags", type: Uint8Array, isPerEvaluator: false },
  { name: "durations", block: "durations", type: Float64Array, isPerEvaluator: false },
  { name: "costs", block: "costs", type: Float64Array, isPerEvaluator: false },
  { name: "trials", block: "trials", type: Uint16Array, isPerEvaluator: false },
  { name: "datasets", block: "datasets", type: Uint32Array, isPerEvaluator: false },
  { name: "targets", block: "targets", type: Uint32Array, isPerEvaluator: false },
  { name: "evaluatorCounts", block: "evaluator-counts", type: Uint16Array, isPerEvaluator: false },
  { name: "evaluatorNames", block: "evaluator-names", type: Uint32Array, isPerEvaluator: true },
  { name: "evaluatorScores", block: "evaluator-scores", type: Float64Array, isPerEvaluator: true },
  { name: "evaluatorFlags", block: "evaluator-flags", type: Uint8Array, isPerEvaluator: true },
];

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
