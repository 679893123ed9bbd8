// The page of the server: what it does now, and plots of the last minutes.
import { on } from "../data/bus";
import { byId, button, h, svg } from "../dom";
import { parseMetrics, rates, snapshot, type Snapshot } from "../metrics";
import { models } from "../models";
import { metricsText } from "../net/api";
import { downloads } from "./downloads";
import { change, describe, stateText } from "./header";

const EVERY_MS = 2000;
const MOST = 150;

/** What is drawn anew with each measurement. */
const measured = h("div", {});

let history: Snapshot[] = [];
let timer = 0;

export const isShown = (): boolean => !byId("server").hidden;

export function show(isVisible: boolean): void {
  byId("server").hidden = !isVisible;
  byId("chat").hidden = isVisible;
  byId("open-server").setAttribute("aria-pressed", String(isVisible));
  clearInterval(timer);
  if (!isVisible) return;
  void measure();
  timer = window.setInterval(() => void measure(), EVERY_MS);
}

export function start(): void {
  byId("server").append(h("div", { class: "server-page" }, measured, downloads));
  byId("open-server").addEventListener("click", () => {
    document.body.classList.remove("with-sidebar");
    show(!isShown());
  });
  on("models", () => {
    if (isShown()) render(null);
  });
}

async function measure(): Promise<void> {
  if (document.hidden) return;
  try {
    const now = snapshot(parseMetrics(await metricsText()), performance.now() / 1000);
    const last = history.at(-1);
    // The server was started anew, so its counters begin at 0.
    if (last && now.tokens < last.tokens) history = [];
    history = [...history, now].slice(-MOST);
    render(null);
  } catch (error) {
    render(error instanceof Error ? error.message : String(error));
  }
}

function render(problem: string | null): void {
  const now = history.at(-1);
  const steps = history.slice(1).map((after, index) => rates(history[index] as Snapshot, after));
  const series = (value: (step: NonNullable<(typeof steps)[number]>) => number) =>
    steps.map((step) => (step ? value(step) : 0));
  const count = (value: number) => Math.round(value).toLocaleString();
  const cards = now
    ? [
        card(
          "Running",
          count(now.running),
          "answers",
          history.map(({ running }) => running),
        ),
        card(
          "Waiting",
          count(now.waiting),
          "requests",
          history.map(({ waiting }) => waiting),
        ),
        card(
          "KV pages",
          count(now.usedPages),
          `of ${count(now.pages)}`,
          history.map(({ usedPages }) => usedPages),
        ),
        card(
          "Generated",
          count(series((step) => step.tokensPerSecond).at(-1) ?? 0),
          "tokens/s",
          series((step) => step.tokensPerSecond),
        ),
        card(
          "Prompts computed",
          count(series((step) => step.promptPerSecond).at(-1) ?? 0),
          "tokens/s",
          series((step) => step.promptPerSecond),
        ),
      ]
    : [];
  const totals: [string, string][] = now
    ? [
        ["Requests", count(now.requests)],
        ["Generated tokens", count(now.tokens)],
        ["Prompt tokens", count(now.promptTokens)],
        ["Cached", now.promptTokens ? `${((100 * now.cachedTokens) / now.promptTokens).toFixed(0)} %` : "–"],
        [
          "First token, on average",
          now.firstTokens ? `${((1000 * now.firstTokenSeconds) / now.firstTokens).toFixed(0)} ms` : "–",
        ],
      ]
    : [];
  measured.replaceChildren(
    ...[
      h(
        "div",
        { class: "server-head" },
        h("h2", { text: "Server" }),
        button("Back to the chat", () => show(false)),
      ),
      problem === null ? null : h("p", { class: "error", text: problem }),
      h("div", { class: "cards" }, ...cards),
      h("h3", { text: "Since the start" }),
      h(
        "dl",
        { class: "numbers" },
        ...totals.map(([name, value]) => h("div", {}, h("dt", { text: name }), h("dd", { text: value }))),
      ),
      h("h3", { text: "Models" }),
      h(
        "ul",
        { class: "models" },
        ...models.all.map((model) =>
          h(
            "li",
            {},
            h("span", {
              class: `dot ${model.state}`,
              attributes: { role: "img", "aria-label": stateText(model.state) },
            }),
            h("span", { class: "menu-text" }, h("span", { text: model.id }), h("small", { text: describe(model) })),
            model.state === "loading"
              ? h("span", { class: "busy" })
              : button(
                  model.state === "loaded" ? "Unload" : "Load",
                  () => void change(model, model.state !== "loaded"),
                ),
          ),
        ),
      ),
    ].filter((part) => part !== null),
  );
}

const WIDTH = 200;
const HEIGHT = 48;

function card(title: string, value: string, unit: string, values: number[]): HTMLElement {
  const most = Math.max(1, ...values);
  const x = (index: number) => (index * WIDTH) / Math.max(values.length - 1, 1);
  const y = (number: number) => HEIGHT - 2 - (number / most) * (HEIGHT - 6);
  const line = values
    .map((number, index) => `${index ? "L" : "M"}${x(index).toFixed(1)} ${y(number).toFixed(1)}`)
    .join("");
  const plot = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    class: "plot",
    role: "img",
    "aria-label": `${title}, the last ${Math.round((values.length * EVERY_MS) / 1000)} seconds, at most ${Math.round(most)}`,
  });
  if (values.length > 1) {
    plot.append(
      svg("path", { d: `${line}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z`, class: "area" }),
      svg("path", { d: line, class: "line" }),
    );
  }
  return h(
    "div",
    { class: "card" },
    h("h3", { text: title }),
    h("p", {}, h("strong", { text: value }), ` ${unit}`),
    plot,
  );
}
