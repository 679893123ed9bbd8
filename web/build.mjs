// Bundles the page into one file: `node build.mjs [FOLDER]`, by default the folder whose files the
// server embeds. The same sources and lock file give the same bytes.
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const FOLDER = here("../crates/rf-server/page");
export const COMMITTED = join(FOLDER, "page.html");

// The script runs after the first frame, which shows what needs no script. A hidden tab has no frames.
const BANNER = "{const run=()=>{";
const FOOTER = "};document.hidden?run():requestAnimationFrame(()=>setTimeout(run))}";

/** The text of the page. */
export async function bundle() {
  const options = {
    bundle: true,
    minify: true,
    write: false,
    charset: "utf8",
    legalComments: "none",
    target: "es2022",
  };
  const [script, style, html] = await Promise.all([
    build({
      ...options,
      entryPoints: [here("src/main.ts")],
      format: "iife",
      banner: { js: BANNER },
      footer: { js: FOOTER },
    }),
    build({ ...options, entryPoints: [here("src/style/main.css")] }),
    readFile(here("src/page.html"), "utf8"),
  ]);
  // A function as the replacement: `$` has a meaning in a text.
  return html
    .replace("/*style*/", () => style.outputFiles[0].text.trim())
    .replace("/*script*/", () => script.outputFiles[0].text.trim());
}

/** The licences of the packages in the page. */
async function licences() {
  const { dependencies } = JSON.parse(await readFile(here("package.json"), "utf8"));
  const parts = ["The chat page, page.html, contains these packages.\n"];
  for (const [name, version] of Object.entries(dependencies)) {
    const { author } = JSON.parse(await readFile(here(`node_modules/${name}/package.json`), "utf8"));
    // Offered under two licences, of which the project has one itself.
    const text =
      name === "dompurify"
        ? `Copyright ${author.name ?? author}. Used under the Apache License, Version 2.0 (LICENSE-APACHE).`
        : await readFile(here(`node_modules/${name}/LICENSE`), "utf8");
    parts.push(`${name} ${version}\n\n${text.replace(/[ \t\r]+$/gm, "").trim()}\n`);
  }
  return parts.join("\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = process.argv[2] ?? FOLDER;
  const page = await bundle();
  await writeFile(join(folder, "page.html"), page);
  await writeFile(join(folder, "licences.txt"), await licences());
  console.log(`page.html: ${Buffer.byteLength(page)} bytes`);
}
