import { attach } from "../attachments";
import { check } from "../connection";
import { on } from "../data/bus";
import { isStored, path, store } from "../data/store";
import { byId, h, icon, iconButton, svg } from "../dom";
import { models } from "../models";
import { toast } from "../notices";
import { runIn, runOf, send, stop } from "../runs";
import type { Attachment } from "../conversation";

/** Files that take a while. */
const SLOW_BYTES = 1_000_000;

/** What was written and not sent, by conversation. */
const drafts = new Map<string, { text: string; files: Attachment[] }>();
let shown = "";
let files: Attachment[] = [];

const input = () => byId<HTMLTextAreaElement>("input");

export function start(editLast: () => void): void {
  const picker = h("input", { attributes: { type: "file", multiple: true, hidden: true, "aria-label": "Files" } });
  picker.addEventListener("change", () => {
    void add([...(picker.files ?? [])]);
    picker.value = "";
  });
  byId("composer-actions").append(
    iconButton("clip", "Add files", () => picker.click()),
    picker,
  );
  const sendButton = h(
    "button",
    { class: "send", attributes: { type: "submit", "aria-label": "Send", title: "Send", id: "send" } },
    icon("send"),
  );
  const stopButton = h(
    "button",
    {
      class: "send",
      attributes: { type: "button", "aria-label": "Stop", title: "Stop (Escape)", id: "stop" },
      on: { click: () => stop(store.current.id) },
    },
    icon("stop"),
  );
  byId("composer-send").append(sendButton, stopButton);

  const showButtons = () => {
    const isRunning = Boolean(runIn(store.current.id));
    sendButton.hidden = isRunning;
    stopButton.hidden = !isRunning;
    sendButton.disabled = !input().value.trim() && !files.length;
  };
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    void submit().then(showButtons);
  });
  input().addEventListener("input", showButtons);
  input().addEventListener("keydown", (event) => {
    // An input method uses Enter to choose a character.
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      void submit().then(showButtons);
    } else if (event.key === "ArrowUp" && !input().value && !files.length) {
      event.preventDefault();
      editLast();
    }
  });
  input().addEventListener("paste", (event) => {
    const pasted = [...(event.clipboardData?.files ?? [])];
    if (!pasted.length) return;
    event.preventDefault();
    void add(pasted);
  });
  acceptDrops();
  on("opened", () => {
    changeDraft();
    showButtons();
    showGauge();
  });
  on("runs", () => {
    showButtons();
    showGauge();
  });
  let isDue = false;
  on("message", () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      showGauge();
    });
  });
  on("models", showGauge);
  showButtons();

  async function add(added: File[]): Promise<void> {
    for (const file of added) {
      if (file.size > SLOW_BYTES) toast(`Reading ${file.name} …`);
      const { attachments, note } = await attach(file, models.props ?? { vision: false, audio: false });
      if (note) toast(note);
      files = [...files, ...attachments];
    }
    showFiles();
    showButtons();
    input().focus();
  }

  function acceptDrops(): void {
    const overlay = byId("drop");
    const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    document.addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      overlay.hidden = false;
    });
    document.addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) overlay.hidden = true;
    });
    document.addEventListener("drop", (event) => {
      overlay.hidden = true;
      if (!hasFiles(event)) return;
      event.preventDefault();
      void add([...(event.dataTransfer?.files ?? [])]);
    });
  }
}

async function submit(): Promise<void> {
  const isEmpty = (): boolean => !input().value.trim() && !files.length;
  if (isEmpty() || runIn(store.current.id)) return;
  // A person may write before the list of models is there.
  if (!models.chosen) await check();
  if (isEmpty() || runIn(store.current.id)) return;
  if (!models.chosen) {
    toast("The server has no model that could answer.");
    return;
  }
  const [text, sent] = [input().value.trim(), files];
  files = [];
  input().value = "";
  showFiles();
  send(text, sent, store.current.head);
}

/** Moves the focus to the field, unless that opens the keyboard of a phone. */
export function focus(): void {
  if (matchMedia("(hover: hover)").matches) input().focus();
}

/** Puts a text into the field, to be changed and sent. */
export function write(text: string): void {
  input().value = text;
  input().dispatchEvent(new Event("input"));
  input().focus();
}

function changeDraft(): void {
  // All conversations that are not begun share a draft.
  const id = isStored(store.current) ? store.current.id : "new";
  if (id === shown) return;
  if (shown && (input().value || files.length)) drafts.set(shown, { text: input().value, files });
  else drafts.delete(shown);
  const draft = drafts.get(id);
  shown = id;
  files = draft?.files ?? [];
  input().value = draft?.text ?? "";
  showFiles();
}

function showFiles(): void {
  byId("attached").replaceChildren(
    ...files.map((file) =>
      h(
        "span",
        { class: "file" },
        file.kind === "image" ? h("img", { attributes: { src: file.data, alt: "" } }) : icon("file"),
        h("span", { text: file.name, attributes: { dir: "auto" } }),
        iconButton("close", `Remove ${file.name}`, () => {
          files = files.filter((other) => other !== file);
          showFiles();
          input().dispatchEvent(new Event("input"));
        }),
      ),
    ),
  );
}

/** Tokens of the context that the shown conversation uses. */
function usedTokens(): number {
  for (const message of path().reverse()) {
    const run = runOf(message.id);
    const { promptTokens = 0, tokens = 0 } = message.stats ?? {};
    if (run) return (run.running.progress?.total ?? promptTokens) + run.running.tokens;
    if (promptTokens) return promptTokens + tokens;
  }
  return 0;
}

function showGauge(): void {
  const { context } = models;
  const used = usedTokens();
  if (!context || !used) return byId("gauge").replaceChildren();
  const share = Math.min(used / context, 1);
  const length = 2 * Math.PI * 7;
  const ring = svg("svg", { viewBox: "0 0 18 18", class: share > 0.9 ? "ring full" : "ring", "aria-hidden": "true" });
  ring.append(
    svg("circle", { cx: 9, cy: 9, r: 7, class: "track" }),
    svg("circle", {
      cx: 9,
      cy: 9,
      r: 7,
      "stroke-dasharray": `${share * length} ${length}`,
      transform: "rotate(-90 9 9)",
    }),
  );
  const text = `${used.toLocaleString()} of ${context.toLocaleString()} tokens of the context`;
  byId("gauge").title = text;
  byId("gauge").replaceChildren(
    ring,
    h("span", { attributes: { "aria-hidden": "true" }, text: `${Math.round(share * 100)} %` }),
    h("span", { class: "hidden-label", text }),
  );
}
