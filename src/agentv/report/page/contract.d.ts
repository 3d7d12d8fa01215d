// Written by scripts/page_contract.py (`make schemas`) from the structs of the same names. Do not edit.

export interface Bounds {
  unscored: number;
  lower: number;
  upper: number;
}

export interface CaseSums {
  results: number;
  cases: number;
  trials: number;
  mean: number;
  deviation: number;
  shares: Array<[number, number]>;
  histogram: Array<number>;
  target_errors: number;
  timeouts: number;
  judge_failures: number;
  machine_failures: number;
  cut_off: number;
  noted: number;
  dry_run: number;
  evaluators: Array<EvaluatorSums>;
}

export interface ComparisonMeta {
  verdict: string;
  notes: Array<string>;
  delta: Delta | null;
  interval: [number, number] | null;
  margin: number;
  mean1: number | null;
  mean2: number | null;
  passes: Passes | null;
  tests: Array<Test>;
  mde: number | null;
  pairs: number;
  unchanged: Statistics | null;
  metrics: Array<MetricChangeRow>;
}

export interface Delta {
  mean: number;
  se: number | null;
  ci_lower: number | null;
  ci_upper: number | null;
  method: string;
  df: number;
  confidence: number;
  clusters: number | null;
  design_effect: number | null;
  bootstrap: [number, number] | null;
}

export interface EmbeddedPageMeta {
  runs: Array<EmbeddedRunMeta>;
  headline: string;
  failed_only: boolean;
  traces: boolean;
  comparison: ComparisonMeta | null;
  rows: number;
}

export interface EmbeddedRunMeta {
  letter: string;
  file: string;
  headline: string;
  facts: string;
  troubles: string;
  figures: RunFigures;
  datasets: Array<string>;
  targets: Array<string>;
  evaluators: Array<string>;
  results: number;
  blocks: LineBlocks;
}

export interface ErrorCount {
  text: string;
  count: number;
}

export interface EvaluatorRow {
  name: string;
  cases: number;
  mean: number;
  low: number | null;
  high: number | null;
  pass_rate: number;
  failures: number;
}

export interface EvaluatorSums {
  name: string;
  cases: number;
  mean: number;
  deviation: number;
  pass_rate: number;
  failures: number;
}

export interface FlipCounts {
  fixed: number;
  broken: number;
  errored: number;
}

export interface JudgeHealthFigures {
  verdict: string;
  facts: Array<[string, string]>;
}

export interface LineBlocks {
  results: Array<number>;
  snippets: Array<number>;
  fields: Array<number>;
}

export interface MetricChangeRow {
  name: string;
  value1: string;
  value2: string;
  delta: string;
  interval: string;
}

export interface MetricRow {
  name: string;
  value: string;
  interval: string;
}

export interface PageMeta {
  runs: Array<RunMeta>;
  headline: string;
  failed_only: boolean;
  traces: boolean;
  comparison: ComparisonMeta | null;
}

export interface Passes {
  passed1: number;
  passed2: number;
  gained: number;
  lost: number;
  ci_lower: number;
  ci_upper: number;
}

export interface RunFigures {
  results: number;
  cases: number;
  trials: number;
  mean: number | null;
  mean_low: number | null;
  mean_high: number | null;
  pass_rate: number | null;
  pass_low: number;
  pass_high: number;
  histogram: Array<number>;
  target_errors: number;
  timeouts: number;
  judge_failures: number;
  machine_failures: number;
  cut_off: number;
  dry_run: number;
  evaluators: Array<EvaluatorRow>;
  cost: number | null;
  judge_cost: number | null;
  tokens: Tokens | null;
  started: string;
  ended: string;
  errors: Array<ErrorCount>;
  targets: Array<string>;
  datasets: Array<string>;
  versions: Array<string>;
  run_ids: Array<string>;
  seconds: number | null;
  commit: string;
  models: Array<string>;
  branch: string;
  command: string;
  planned: number | null;
  unfinished: boolean;
  invalid: number;
  skipped: number;
  not_run: number;
  unplanned_results: number;
  metrics: Array<MetricRow>;
  judge_health: JudgeHealthFigures | null;
}

export interface RunMeta {
  letter: string;
  file: string;
  headline: string;
  facts: string;
  troubles: string;
  figures: RunFigures;
  datasets: Array<string>;
  targets: Array<string>;
  evaluators: Array<string>;
}

export interface Statistics {
  pairs: number;
  mean1: number | null;
  mean2: number | null;
  delta: Delta | null;
  tests: Array<Test>;
  passes: Passes | null;
  mde: number | null;
  bounds: Bounds | null;
  interval: [number, number] | null;
  margin: number;
  verdict: "better" | "cannot tell" | "not worse" | "worse";
  notes: Array<string>;
}

export interface Test {
  name: string;
  p_value: number;
  method?: string;
  resamples?: number;
  seed?: number | null;
}

export interface Tokens {
  input: number;
  output: number;
  reasoning: number;
}
