// @ts-check
/** Numbers, durations, money and times as text. */

const NO_VALUE = "–";

/**
 * Return a number with thousands separators.
 * @param {number} value
 */
export function numberText(value) {
  return value.toLocaleString("en");
}

/**
 * Return a score with two decimals. Only exactly 1 is shown as 1.00.
 * @param {number | null | undefined} score
 */
export function scoreText(score) {
  if (!isNumber(score)) return NO_VALUE;
  const text = score.toFixed(2);
  return score < 1 && text === "1.00" ? "0.99" : text;
}

/**
 * Return a difference with its sign.
 * @param {number | null | undefined} value
 */
export function signedText(value) {
  if (!isNumber(value)) return NO_VALUE;
  const text = Math.abs(value).toFixed(2);
  if (Number(text) === 0) return `±${text}`;
  return (value < 0 ? "−" : "+") + text;
}

/**
 * Return a share in percent. Only exactly 0 is shown as 0%, and only exactly 1 as 100%.
 * @param {number} share
 */
export function percentText(share) {
  const rounded = Math.round(share * 100);
  if (rounded === 100 && share < 1) return ">99%";
  if (rounded === 0 && share > 0) return "<1%";
  return `${rounded}%`;
}

/**
 * Return a duration in a suitable unit.
 * @param {number} milliseconds
 */
export function durationText(milliseconds) {
  if (!isNumber(milliseconds)) return NO_VALUE;
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 10_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  if (milliseconds < 90_000) return `${(milliseconds / 1000).toFixed(0)} s`;
  if (milliseconds < 5_400_000) return `${Math.round(milliseconds / 60_000)} min`;
  return `${(milliseconds / 3_600_000).toFixed(1)} h`;
}

/**
 * Return an amount in dollars. Small amounts have two significant digits.
 * @param {number | null | undefined} dollars
 */
export function moneyText(dollars) {
  if (!isNumber(dollars)) return NO_VALUE;
  if (dollars === 0) return "$0";
  if (dollars >= 0.1) return `$${dollars.toFixed(2)}`;
  return `$${Number(dollars.toPrecision(2))}`;
}

/**
 * Return a count with its noun in the singular or the plural.
 * @param {number} count
 * @param {string} what
 * @param {string} [plural]
 */
export function countText(count, what, plural = `${what}s`) {
  return `${numberText(count)} ${count === 1 ? what : plural}`;
}

/**
 * Return a UTC time to the minute. Text that is not a time is returned unchanged.
 * @param {string} iso
 */
export function timeText(iso) {
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return iso;
  const minute = time.toISOString().slice(0, 16);
  return `${minute.replace("T", " ")} UTC`;
}

/**
 * Return the length of a text.
 * @param {number} characters
 */
export function sizeText(characters) {
  if (characters < 10_000) return `${numberText(characters)} characters`;
  if (characters < 1e6) return `${Math.round(characters / 1000)}k characters`;
  return `${(characters / 1e6).toFixed(1)}M characters`;
}

/**
 * Return whether a value is a number other than NaN and infinity.
 * @param {unknown} value
 * @returns {value is number}
 */
export function isNumber(value) {
  return Number.isFinite(value);
}
