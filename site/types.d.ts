// What sglang_hydra.cli.answers answers, as far as the pages read it.

interface Remedy {
  words: string[];
  note: string;
}
interface Finding {
  id: string;
  level: string;
  message: string;
  hint: string | null;
  set_by?: string[];
  remedies?: Remedy[];
}
interface Fit {
  fits: boolean | null;
  left_gib: number | null;
  error_gib: number | null;
  memory_gib: number | null;
  kv_tokens: number | null;
}
interface PlanRecord {
  server_id: string;
  basis: string;
  engine: { version: string };
  fit: Fit | null;
}
interface Taken {
  field: string;
  typed: string;
  name: string;
}
interface Tile {
  value: string;
  label: string;
  note: string;
}
interface Asked {
  words: string[];
  typed: string;
  taken: Taken[];
  findings: Finding[];
  screen?: string;
}
interface Refused extends Asked {
  plan: null;
}
interface Made extends Asked {
  plan: PlanRecord;
  launch: "yes" | "no" | "unknown";
  why: string;
  short: string | null;
  hub: string | null;
  gpus: string;
  room: string;
  by: string;
  rules: string;
  commands: [string, string][];
  tiles: Tile[];
  set: string[][];
  changed: { cells: string[]; constant: boolean }[];
  memory: string[][];
  limits: string[][];
  limit: string;
}
type Answer = Refused | Made;
type Form = Record<string, string>;
interface Plan {
  form: Form;
  config: string | null;
  answer?: Answer;
}
interface VerbAnswer {
  code: number;
  out: string;
  err: string;
}
interface PastedServer {
  name: string | null;
  place: string;
  command: string | null;
  form: Form;
  yaml: string;
  findings: Finding[];
  arguments: { name: string; shown: string; state: string; note: string }[];
}
interface Diagnosis {
  kind: string;
  healthy: boolean;
  finding: Finding | null;
  remedies: string[];
  notes: string[];
  last_lines: { number: number; text: string }[];
}
interface PasteAnswer {
  servers: PastedServer[];
  findings: Finding[];
  diagnosis: Diagnosis | null;
}
