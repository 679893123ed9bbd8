// Codex: one prompt without a terminal. The model calls a tool that Codex lacks, is told so, and
// answers.
import assert from "node:assert";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const home = mkdtempSync(join(tmpdir(), "codex-"));
mkdirSync(join(home, ".codex"));
writeFileSync(
  join(home, ".codex/config.toml"),
  `model = "fixed"
model_provider = "local"
[model_providers.local]
name = "local"
base_url = "${process.env.SERVER}/v1"
wire_api = "responses"
`,
);
const program = join(dirname(fileURLToPath(import.meta.url)), "node_modules/.bin/codex");
const { stdout, stderr, status } = spawnSync(
  program,
  ["exec", "--skip-git-repo-check", "What is the weather in Oslo?"],
  {
    cwd: home,
    encoding: "utf8",
    input: "",
    timeout: 180_000,
    env: { PATH: process.env.PATH, HOME: home },
  },
);
console.log(stdout, stderr);
assert.equal(status, 0);
assert(stdout.includes("It will be sunny in Oslo."));
