// One message: its text, reasoning, calls, files, and what can be done with it.
import { models } from "../models";
import * as data from "../data/store";
import { store } from "../data/store";
import { newId } from "../data/id";
import { button, copyButton, h, icon, iconButton } from "../dom";
import { MarkdownView } from "../markdown/render";
import { answer, type Run, resume, runOf, send } from "../runs";
import { leafBelow, pathTo, subtree } from "../tree";
import type { Attachment, Message } from "../conversation";
import { CallList, toolResult } from "./calls";
import { focus } from "./composer";
import { confirmed } from "./dialog";
import { showDetails } from "./details";

export class MessageView {
  readonly element: HTMLElement;
  private readonly markdown = new MarkdownView();
  private readonly status = h("p", { class: "progress" });
  private readonly error = h("p", { class: "error" });
  private readonly calls = new CallList();
  private readonly footer = h("footer");
  private readonly content = h("div", { class: "content" });
  private reasoning: { element: HTMLDetailsElement; summary: HTMLElement; markdown: MarkdownView } | null = null;
  private editor: HTMLElement | null = null;
  private place = "";
  private siblings: Message[] = [];
  private isLast = false;

  constructor(private message: Message) {
    const name = { user: "You", assistant: message.model || "Answer", tool: "Tool" }[message.role];
    this.content.append(...files(message.attachments));
    this.element = h(
      "article",
      { class: `message ${message.role}`, attributes: { "data-id": message.id } },
      h("h2", { class: message.role === "user" ? "hidden-label" : "", text: name }),
      this.content,
      this.footer,
    );
    if (message.role === "user")
      this.content.append(h("div", { class: "bubble", text: message.content, attributes: { dir: "auto" } }));
    else if (message.role === "tool") this.content.append(toolResult(message));
    else this.content.append(this.status, this.markdown.element, this.calls.element, this.error);
    this.update(message);
  }

  /** Shows the message as it is now. */
  update(message: Message): void {
    this.message = message;
    const run = runOf(message.id);
    const isStreaming = message.state === "streaming";
    this.element.setAttribute("aria-busy", String(isStreaming));
    if (message.role === "assistant") {
      this.showReasoning(isStreaming);
      this.markdown.update(message.content, !isStreaming);
      this.calls.update(message, !isStreaming && this.isLast);
      this.status.textContent = isStreaming ? statusText(message, run) : "";
      this.status.hidden = !this.status.textContent;
      this.element.classList.toggle("waiting", isStreaming && !message.content && !message.calls?.length);
      this.error.textContent = isStreaming ? "" : errorText(message);
      this.error.hidden = !this.error.textContent;
    }
    if (isStreaming) this.footer.replaceChildren(h("span", { class: "stats", text: liveText(run) }));
    else this.showFooter();
  }

  /** Tells the message its branches, itself among them, and whether it is the last one shown. */
  setPlace(siblings: Message[], isLast: boolean): void {
    const place = `${siblings.map(({ id }) => id).join()} ${isLast}`;
    if (place === this.place) return;
    [this.place, this.siblings, this.isLast] = [place, siblings, isLast];
    this.update(this.message);
  }

  /** Shows the branches and the actions. Those that wait for the end of an answer are hidden by a class of the thread. */
  private showFooter(): void {
    const { role, state, calls, content } = this.message;
    const isAnswer = role === "assistant";
    const isCut =
      ["stopped", "length", "interrupted", "error"].includes(state ?? "") && !calls?.length && content !== "";
    const actions: HTMLElement[] = [];
    if (content) actions.push(copyButton(isAnswer ? "Copy answer" : "Copy message", () => this.message.content));
    if (role !== "tool") actions.push(whenIdle(iconButton("edit", "Edit", () => this.edit())));
    if (isAnswer) actions.push(whenIdle(iconButton("redo", "Regenerate", () => this.regenerate())));
    if (isAnswer && this.isLast && isCut)
      actions.push(whenIdle(iconButton("forward", "Continue", () => this.resume())));
    if (isAnswer) actions.push(iconButton("code", "Details", () => showDetails(this.message)));
    actions.push(whenIdle(iconButton("trash", "Delete", () => void remove(this.message))));
    if (isAnswer) actions.push(h("span", { class: "stats", text: statsText(this.message) }));
    this.footer.replaceChildren(...branches(this.message, this.siblings), ...actions);
  }

  private regenerate(): void {
    answer(store.current, pathTo(store.messages, this.message.parent));
    focus();
  }

  private resume(): void {
    resume(store.current, this.message, pathTo(store.messages, this.message.id));
    focus();
  }

  edit(): void {
    if (this.editor || this.message.role === "tool") return;
    const { message } = this;
    const field = h("textarea", { attributes: { "aria-label": "Edit the message", rows: 3, dir: "auto" } });
    field.value = message.content;
    const close = () => {
      this.editor?.remove();
      this.editor = null;
      this.element.classList.remove("editing");
    };
    const save = () => {
      const text = field.value.trim();
      if (!text && !message.attachments?.length) return;
      close();
      if (message.role === "user") send(text, message.attachments, message.parent);
      else
        data.add(store.current, {
          ...message,
          id: newId(),
          content: text,
          created: Date.now(),
          state: "done",
          error: undefined,
          logprobs: undefined,
        });
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        close();
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
    });
    const actions = h(
      "div",
      { class: "edit-actions" },
      h("small", { text: "The old text stays as a branch." }),
      button("Cancel", close),
      button(message.role === "user" ? "Send" : "Save", save, "primary"),
    );
    this.editor = h("div", { class: "editor" }, field, actions);
    this.element.classList.add("editing");
    this.content.before(this.editor);
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }

  private showReasoning(isStreaming: boolean): void {
    const { message } = this;
    if (!message.reasoning) {
      this.reasoning?.element.remove();
      this.reasoning = null;
      return;
    }
    if (!this.reasoning) {
      const summary = h("span");
      const markdown = new MarkdownView();
      const element = h(
        "details",
        { class: "reasoning" },
        h("summary", {}, icon("bulb"), summary, icon("down")),
        markdown.element,
      );
      this.reasoning = { element, summary, markdown };
      this.markdown.element.before(element);
    }
    const isThinking = isStreaming && !message.content;
    const seconds = (message.reasoningMs ?? 0) / 1000;
    const time =
      seconds >= 60
        ? `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`
        : `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
    this.reasoning.summary.textContent = isThinking
      ? `Thinking … ${time}`
      : message.reasoningMs
        ? `Thought for ${time}`
        : "Reasoning";
    this.reasoning.element.classList.toggle("live", isThinking);
    // Nobody reads what is folded: it is rendered when it is opened.
    const { element, markdown } = this.reasoning;
    if (element.open) markdown.update(message.reasoning, !isThinking);
    element.ontoggle = () =>
      element.open && markdown.update(this.message.reasoning ?? "", this.message.state !== "streaming");
  }
}

function files(attachments: Attachment[] = []): HTMLElement[] {
  return attachments.map(({ kind, name, data: content }) => {
    if (kind === "image" && content.startsWith("data:image/")) {
      return h("img", { class: "picture", attributes: { src: content, alt: name } });
    }
    if (kind === "audio" && content.startsWith("data:audio/")) {
      return h("audio", { attributes: { src: content, controls: true, title: name, "aria-label": name } });
    }
    return h(
      "details",
      { class: "attachment" },
      h("summary", {}, icon("file"), h("span", { text: name })),
      h("pre", { text: content, attributes: { dir: "auto", tabindex: 0 } }),
    );
  });
}

function whenIdle(button: HTMLButtonElement): HTMLButtonElement {
  button.classList.add("when-idle");
  return button;
}

function branches(message: Message, all: Message[]): HTMLElement[] {
  if (all.length < 2) return [];
  const at = all.findIndex(({ id }) => id === message.id);
  const go = (to: number) => {
    const other = all[to];
    if (!other) return;
    data.change(store.current, { head: leafBelow(store.messages, other.id) });
    data.shownAgain();
  };
  const [before, after] = [
    iconButton("left", "Branch before", () => go(at - 1)),
    iconButton("right", "Branch after", () => go(at + 1)),
  ];
  before.disabled = at === 0;
  after.disabled = at === all.length - 1;
  return [h("span", { class: "branches" }, before, h("span", { text: `${at + 1}/${all.length}` }), after)];
}

async function remove(message: Message): Promise<void> {
  const count = subtree(store.messages, message.id).length;
  const text =
    count === 1
      ? "The message will be lost."
      : `The message and the ${count - 1} after it, in all branches, will be lost.`;
  if (await confirmed("Delete the message?", text, "Delete")) data.removeMessage(message);
}

function errorText({ state, error }: Message): string {
  if (error) return error;
  return state === "interrupted" ? "The answer was interrupted. Continue it, or compute it again." : "";
}

/** What happens before the first token. */
function statusText(message: Message, run: Run | undefined): string {
  if (!run) return message.content ? "" : "Another tab computes this answer.";
  if (run.waitsUntil !== null) {
    return `The server is busy. Next attempt in ${Math.max(1, Math.ceil((run.waitsUntil - Date.now()) / 1000))} s.`;
  }
  if (run.running.tokens > 0) return "";
  const model = models.all.find(({ id }) => id === message.model);
  if (model && (model.state === "loading" || model.state === "unloaded")) return `Loading ${model.id} …`;
  const { progress } = run.running;
  if (progress && progress.total > 0) {
    const cached = progress.cached ? `, ${progress.cached.toLocaleString()} of them cached` : "";
    return `Reading the prompt: ${progress.processed.toLocaleString()} of ${progress.total.toLocaleString()} tokens${cached}`;
  }
  return "Reading the prompt …";
}

function liveText(run: Run | undefined): string {
  if (!run || run.running.tokens === 0) return "";
  const rate = run.running.rate();
  return `${run.running.tokens.toLocaleString()} tokens${rate ? ` · ${rate.toFixed(1)} tokens/s` : ""}`;
}

function statsText({ stats, state }: Message): string {
  const parts: string[] = [];
  if (stats?.tokens !== undefined) parts.push(`${stats.tokens.toLocaleString()} tokens`);
  if (stats?.tokensPerSecond) parts.push(`${stats.tokensPerSecond.toFixed(1)} tokens/s`);
  if (state === "length") parts.push("cut off at the limit of tokens");
  if (state === "stopped") parts.push("stopped");
  return parts.join(" · ");
}
