import { soon } from "../connection";
import { on } from "../data/bus";
import { byId, h, icon, iconButton } from "../dom";
import { models } from "../models";
import { setLoaded } from "../net/api";
import { notice } from "../notices";
import { openMenu } from "./menu";
import type { ModelInfo } from "../conversation";

export function start(openParameters: () => void): void {
  const button = byId("model");
  button.addEventListener("click", () => {
    openMenu(
      button,
      [
        ...models.all.map((model) => ({
          label: model.id,
          note: describe(model),
          isChecked: model.id === models.chosen,
          run: () => models.choose(model.id),
        })),
        h("hr"),
        ...loading(),
      ],
      "Models",
    );
  });
  byId("header-actions").append(iconButton("sliders", "Parameters of the conversation", openParameters));
  on("models", show);
  on("connection", show);
  show();
}

function show(): void {
  const { info } = models;
  const state = info?.state ?? "none";
  byId("model").replaceChildren(
    h("span", { class: `dot ${state}`, attributes: { role: "img", "aria-label": stateText(state) } }),
    h("span", { class: "model-name", text: info?.id ?? "No model" }),
    ...(state === "loading" ? [h("span", { class: "muted", text: "loading …" })] : []),
    icon("down"),
  );
}

/** What can be done with the chosen model. */
function loading(): { label: string; note?: string; run: () => void }[] {
  const { info } = models;
  if (!info) return [{ label: "Read the list again", run: soon }];
  const isLoaded = info.state === "loaded";
  return [
    {
      label: isLoaded ? `Unload ${info.id}` : `Load ${info.id}`,
      note: isLoaded ? "frees its memory after its running answers" : "ready for the first message",
      run: () => void change(info, !isLoaded),
    },
  ];
}

export async function change(model: ModelInfo, isLoaded: boolean): Promise<void> {
  try {
    await setLoaded(model.id, isLoaded);
    notice("models", null);
  } catch (error) {
    notice(
      "models",
      `${model.id} was not ${isLoaded ? "loaded" : "unloaded"}. ${error instanceof Error ? error.message : error}`,
    );
  }
  soon();
}

export const stateText = (state: string): string =>
  ({ loaded: "loaded", loading: "loading", unloaded: "not loaded", failed: "failed", none: "no model" })[state] ??
  state;

export function describe({ state, context, error, sizeBytes, chats }: ModelInfo): string {
  const parts = [stateText(state)];
  if (context) parts.push(`${context.toLocaleString()} tokens`);
  if (sizeBytes) parts.push(`${(sizeBytes / 2 ** 30).toFixed(1)} GiB`);
  if (!chats) parts.push("does not chat");
  if (error) parts.push(error);
  return parts.join(" · ");
}
