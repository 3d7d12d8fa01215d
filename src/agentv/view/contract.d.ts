// Written by scripts/page_contract.py (`make schemas`) from the structs of the same names. Do not edit.

import type { CaseSums, FlipCounts } from "../report/page/contract";

export interface BlindCase {
  question: string | null;
  answer: string;
  conversation: Array<ReviewMessage>;
  tool_calls: Array<ReviewToolCall>;
  tool_counts: Record<string, number>;
  file_changes: string | null;
  expected_outcome: string | null;
  reference_answer: string | null;
}

export interface DescribeRequest {
  runs: Array<RunSums>;
  flips: FlipCounts;
}

export interface IndexState {
  gone: string;
  generation: number;
  change: string;
  first: number;
  chunks: number;
  closed: number;
  results: number;
  read: number;
  size: number;
  is_behind: boolean;
  status: string;
  truncated: Problem | null;
  bad: number;
  problems: Array<string>;
  datasets: Array<string>;
  targets: Array<string>;
  evaluators: Array<string>;
}

export interface NewLabel {
  label: "fail" | "pass" | "retracted";
  note: string;
}

export interface Problem {
  message: string;
  severity: "error" | "warning";
  file: string | null;
  line: number | null;
  column: number | null;
  hint: string;
}

export interface ReviewDefaults {
  labels: string;
  reviewer: string;
  only: "all" | "chosen" | "failed";
  share: number | null;
}

export interface ReviewMessage {
  role: string;
  text: string;
  calls: Array<ReviewToolCall>;
}

export interface ReviewRequest {
  reviewer: string;
  only: "all" | "chosen" | "failed";
  share: number | null;
  results: Array<number>;
  run: string | null;
}

export interface ReviewState {
  id: string;
  reviewer: string;
  sampling: "chosen" | "random";
  count: number;
  labelled: number;
  shared: number;
}

export interface ReviewToolCall {
  tool: string;
  input: string | null;
  output: string | null;
}

export interface Run {
  id?: string | null;
  name: string;
  file?: string;
  run_id?: string;
  started?: string;
  status?: string;
  targets?: Array<string>;
  commit?: string;
  evals?: Array<string>;
  cases?: number | null;
  planned?: number | null;
  mean?: number | null;
  low?: number | null;
  high?: number | null;
  pass_rate?: number | null;
  cost?: number | null;
  note?: string;
  problem?: string;
}

export interface RunList {
  runs: Array<Run>;
  is_counting: boolean;
  folders: Array<string>;
}

export interface RunSums {
  run: string;
  sums: CaseSums;
}
