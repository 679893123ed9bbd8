// Bundles the page into one file, which the server embeds: `node build.mjs`. The same sources and
// lock file give the same page. `node build.mjs --check` compares the page with the committed one.
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { deflateSync, inflateSync } from "node:zlib";
import { build } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const PAGE = here("../crates/rf-server/page/page.html.zlib");
const LICENCES = here("../crates/rf-server/page/licences.txt");

/** The bytes that the server sends to browsers. */
export const compressed = () => readFile(PAGE);

/** The text of the committed page. Its compressed bytes depend on the version of Node. */
export const committed = async () => inflateSync(await compressed()).toString();

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
  const parts = ["The chat page contains these packages.\n"];
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
  const page = await bundle();
  const texts = await licences();
  if (process.argv[2] === "--check") {
    const same = page === (await committed()) && texts === (await readFile(LICENCES, "utf8"));
    if (!same) {
      console.error("error: the committed page is not what the sources give: run `npm run build` in web");
      process.exit(1);
    }
  } else {
    const packed = deflateSync(page, { level: 9 });
    await writeFile(PAGE, packed);
    await writeFile(LICENCES, texts);
    console.log(`page: ${Buffer.byteLength(page)} bytes, ${packed.length} compressed`);
  }
}
