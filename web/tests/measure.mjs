// Measures the page: `node tests/measure.mjs`. Other programs that compute make the times longer, so
// the CPU time of the page's main thread is measured, too.
import { gzipSync } from "node:zlib";
import { committed, compressed } from "../build.mjs";
import { ask, frameTimes, launch, start } from "./harness.mjs";

const LOADS = 15;
const shared = await launch("");
const it = await start(shared);
const context = await it.browser.newContext({ viewport: { width: 1280, height: 800 } });
const middle = (values) => values.sort((a, b) => a - b)[values.length >> 1];

/** The CPU time of the main thread in ms, as a function that gives it since its last call. */
async function cpuOf(page) {
  const session = await context.newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  let before = 0;
  return async () => {
    const { metrics } = await session.send("Performance.getMetrics");
    const now = metrics.find(({ name }) => name === "TaskDuration").value * 1000;
    const passed = now - before;
    before = now;
    return passed;
  };
}

const html = Buffer.from(await committed());
console.log(`size: ${html.length} bytes, ${(await compressed()).length} as the server sends it (deflate)`);
console.log(`size: ${gzipSync(html, { level: 9 }).length} with gzip`);

const [paints, ready, cpus] = [[], [], []];
for (let load = 0; load < LOADS; load++) {
  const page = await context.newPage();
  const cpu = await cpuOf(page);
  await page.goto(it.urls.scripted);
  await page.waitForFunction(() => document.querySelector(".model-name")?.textContent === "scripted");
  await page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint").length > 0);
  const [paint, loaded] = await page.evaluate(() => [
    performance.getEntriesByName("first-contentful-paint")[0].startTime,
    performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd,
  ]);
  paints.push(paint);
  ready.push(loaded);
  cpus.push(await cpu());
  await page.close();
}
const range = (values) => `${middle(values).toFixed(0)} ms (least ${values[0].toFixed(0)})`;
console.log(`first paint: ${range(paints)}, of ${LOADS} loads`);
console.log(`ready: ${range(ready)}, CPU time of the start: ${range(cpus)}`);

const page = await context.newPage();
await page.goto(it.urls.scripted);
await page.waitForFunction(() => document.querySelector(".model-name")?.textContent === "scripted");
const cpu = await cpuOf(page);
await cpu();
const begin = performance.now();
const frames = await frameTimes(page, () => ask(page, "one paragraph"));
const passed = performance.now() - begin;
const at = (share) => frames[Math.floor((frames.length - 1) * share)].toFixed(0);
console.log(
  `100 KB paragraph: ${(passed / 1000).toFixed(1)} s, ${(frames.length / (passed / 1000)).toFixed(0)} frames/s, ` +
    `frame 50 % ${at(0.5)} ms, 95 % ${at(0.95)} ms, 99 % ${at(0.99)} ms; ` +
    `CPU ${((await cpu()) / frames.length).toFixed(1)} ms per frame`,
);
it.close();
await shared.close();
