// Bundles the unit tests, since Node runs no TypeScript, and runs them.
import { spawnSync } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const folder = fileURLToPath(new URL("unit", import.meta.url));
const out = await mkdtemp(join(tmpdir(), "page-tests-"));
const names = (await readdir(folder)).filter((name) => name.endsWith(".test.ts"));
await build({
  entryPoints: names.map((name) => join(folder, name)),
  outdir: out,
  bundle: true,
  platform: "node",
  format: "esm",
  outExtension: { ".js": ".mjs" },
  logLevel: "error",
});
const files = names.map((name) => join(out, name.replace(/\.ts$/, ".mjs")));
const { status } = spawnSync(process.execPath, ["--test", "--test-reporter=spec", ...files], { stdio: "inherit" });
await rm(out, { recursive: true });
process.exit(status ?? 1);
