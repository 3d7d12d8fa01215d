/** Numbers as people read them, and the words and signs of verdicts. */

/** What a result or a case came to, worst first. */
export const ERROR = 0, FAIL = 1, BORDERLINE = 2, PASS = 3, ABSENT = 255;

export const STATES = [
  { word: "error", sign: "!", key: "error" },
  { word: "fail", sign: "✗", key: "fail" },
  { word: "borderline", sign: "~", key: "borderline" },
  { word: "pass", sign: "✓", key: "pass" },
];

export function stateOf(verdict) {
  return { pass: PASS, borderline: BORDERLINE }[verdict] ?? FAIL;
}

export function scoreText(score) {
  if (!Number.isFinite(score)) return "–";
  const text = score.toFixed(2);
  return score < 1 && text === "1.00" ? "0.99" : text;
}

export function signedText(value, digits = 2) {
  if (!Number.isFinite(value)) return "–";
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return `±${text}`;
  return (value < 0 ? "−" : "+") + text;
}

export function percentText(share) {
  const rounded = Math.round(share * 100);
  if (rounded === 100 && share < 1) return ">99%";
  if (rounded === 0 && share > 0) return "<1%";
  return `${rounded}%`;
}

export function durationText(milliseconds) {
  if (!Number.isFinite(milliseconds)) return "–";
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 90_000) return `${(milliseconds / 1000).toFixed(milliseconds < 10_000 ? 1 : 0)} s`;
  return milliseconds < 5_400_000
    ? `${Math.round(milliseconds / 60_000)} min`
    : `${(milliseconds / 3_600_000).toFixed(1)} h`;
}

export function moneyText(dollars) {
  if (!Number.isFinite(dollars)) return "–";
  if (dollars === 0) return "$0";
  if (dollars >= 0.1) return `$${dollars.toFixed(2)}`;
  return `$${Number(dollars.toPrecision(2))}`;
}

export function countText(count, what, plural = `${what}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? what : plural}`;
}

export function timeText(iso) {
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return iso;
  return time.toISOString().slice(0, 16).replace("T", " ") + " UTC";
}

export function sizeText(characters) {
  if (characters < 10_000) return `${characters.toLocaleString("en")} characters`;
  return characters < 1e6 ? `${Math.round(characters / 1000)}k characters` : `${(characters / 1e6).toFixed(1)}M characters`;
}
