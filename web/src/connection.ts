// Notices when the server is gone and when it is back.
import { emit } from "./data/bus";
import { listModels, Refusal, Unreachable } from "./net/api";
import { models } from "./models";
import { notice } from "./notices";

const USUAL_MS = 15_000;
const SOON_MS = 2_000;

let isLost = false;
let timer = 0;

/** Reads the list of models, which also tells whether the server is there. */
export async function check(): Promise<void> {
  clearTimeout(timer);
  let delay = USUAL_MS;
  try {
    models.set(await listModels());
    notice("server", null);
    isLost = false;
    if (models.all.some(({ state }) => state === "loading")) delay = 1000;
  } catch (error) {
    if (error instanceof Unreachable) {
      isLost = true;
      delay = SOON_MS;
      notice("server", "The server does not answer. The page tries again every two seconds.");
    } else {
      notice("server", `The models cannot be listed. ${error instanceof Error ? error.message : error}`);
      if (error instanceof Refusal && error.retryAfter !== null) delay = Math.max(error.retryAfter * 1000, SOON_MS);
    }
  }
  emit("connection");
  timer = window.setTimeout(() => void check(), document.hidden && !isLost ? 4 * delay : delay);
}

/** A request got no answer. */
export function lost(): void {
  if (!isLost) void check();
}

/** Reads the list again soon, because a model is being loaded or unloaded. */
export function soon(): void {
  clearTimeout(timer);
  timer = window.setTimeout(() => void check(), 300);
}

export function start(): void {
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) void check();
  });
  window.addEventListener("online", () => void check());
  void check();
}
