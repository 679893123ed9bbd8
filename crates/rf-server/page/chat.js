"use strict";

const byId = (id) => document.getElementById(id);

// --- Storage: the index of conversations, each conversation, the settings ---

const PREFIX = "rocmforge.";

const storage = {
  read(key, fallback) {
    try {
      return JSON.parse(localStorage.getItem(PREFIX + key)) ?? fallback;
    } catch {
      return fallback;
    }
  },
  write(key, value) {
    try {
      localStorage.setItem(PREFIX + key, JSON.stringify(value));
      notice("storage", "");
    } catch {
      notice("storage", "The storage of the browser is full. Delete conversations to keep new messages.");
    }
  },
  remove(key) {
    localStorage.removeItem(PREFIX + key);
  },
};

// Fields of the settings, by the name of the request's field.
const SAMPLER = ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed"];

const state = {
  index: storage.read("conversations", []),
  settings: storage.read("settings", {}),
  conversation: null,
  models: [],
  request: null,
};

const newConversation = () => ({ id: crypto.randomUUID?.() ?? String(Date.now()), title: "", messages: [] });

function save() {
  const { id, title } = state.conversation;
  if (!state.conversation.messages.length) return;
  state.index = [{ id, title }, ...state.index.filter((entry) => entry.id !== id)];
  storage.write("conversations", state.index);
  storage.write(`conversation.${id}`, state.conversation);
  showConversations();
}

function open(id) {
  stop();
  const stored = id && storage.read(`conversation.${id}`, null);
  state.conversation = stored || newConversation();
  for (const message of state.conversation.messages) delete message.isStreaming;
  storage.write("open", state.conversation.id);
  document.body.classList.remove("with-sidebar");
  byId("toggle-sidebar").setAttribute("aria-expanded", "false");
  showConversations();
  showMessages();
  byId("input").focus();
}

function remove(id) {
  const entry = state.index.find((entry) => entry.id === id);
  if (!confirm(`Delete the conversation "${entry.title}"?`)) return;
  state.index = state.index.filter((entry) => entry.id !== id);
  storage.write("conversations", state.index);
  storage.remove(`conversation.${id}`);
  if (state.conversation.id === id) open(state.index[0]?.id);
  else showConversations();
}

// --- View ---

function node(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// One text per subject, so that the end of one problem does not hide another.
const notices = new Map();

function notice(subject, text) {
  if (text) notices.set(subject, text);
  else notices.delete(subject);
  byId("notice").textContent = [...notices.values()].join(" ");
}

function showConversations() {
  const items = state.index.map(({ id, title }) => {
    const openIt = node("button", { className: "open", type: "button", textContent: title, title });
    openIt.setAttribute("aria-current", String(id === state.conversation.id));
    openIt.addEventListener("click", () => open(id));
    const deleteIt = node("button", { className: "delete", type: "button", textContent: "✕" });
    deleteIt.setAttribute("aria-label", `Delete ${title}`);
    deleteIt.addEventListener("click", () => remove(id));
    return node("li", {}, openIt, deleteIt);
  });
  byId("conversations").replaceChildren(...items);
}

function showMessages() {
  const messages = state.conversation.messages.map((message, i) => messageNode(message, i));
  byId("messages").replaceChildren(...messages);
  showButtons();
  scrollDown();
}

function messageNode(message, index) {
  const isUser = message.role === "user";
  const body = node("div", { className: isUser ? "body" : "body markdown" });
  const article = node("article", { className: `message ${message.role}` }, node("h2", { textContent: isUser ? "You" : (message.model ?? "Answer") }), body);
  article.dataset.index = index;
  if (isUser) body.textContent = message.content;
  else showAnswer(article, message);
  return article;
}

// Updates an answer: its folded reasoning, text, error and footer.
function showAnswer(article, message) {
  const body = article.querySelector(".body");
  let details = article.querySelector("details");
  if (message.reasoning) {
    if (!details) {
      details = node("details", {}, node("summary"), node("div", { className: "markdown" }));
      body.before(details);
    }
    const isThinking = message.isStreaming && !message.content;
    details.querySelector("summary").textContent = isThinking ? "Thinking …" : "Reasoning";
    markdown.render(details.querySelector(".markdown"), message.reasoning);
  }
  markdown.render(body, message.content);
  article.querySelector(".error")?.remove();
  if (message.error) body.after(node("p", { className: "error", textContent: message.error }));
  article.setAttribute("aria-busy", String(Boolean(message.isStreaming)));
  article.querySelector("footer")?.remove();
  if (message.isStreaming) return;
  const copy = node("button", { type: "button", textContent: "Copy" });
  copy.setAttribute("aria-label", "Copy answer");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(message.content);
    copy.textContent = "Copied";
  });
  const footer = node("footer", {}, copy);
  if (Number(article.dataset.index) === state.conversation.messages.length - 1) {
    const again = node("button", { type: "button", textContent: "Regenerate" });
    again.addEventListener("click", regenerate);
    footer.append(again);
  }
  if (message.note) footer.append(node("span", { textContent: message.note }));
  article.append(footer);
}

function showButtons() {
  byId("stop").hidden = !state.request;
  byId("send").hidden = Boolean(state.request);
}

// Follows the answer only if the end is in view, so that a reader is not moved.
const isAtEnd = () => {
  const view = byId("messages");
  return view.scrollHeight - view.scrollTop - view.clientHeight < 80;
};

function scrollDown() {
  const view = byId("messages");
  view.scrollTop = view.scrollHeight;
}

// --- Requests ---

function headers() {
  const key = state.settings.apiKey;
  return { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

async function errorOf(response) {
  const text = await response.text();
  let message = text;
  try {
    message = JSON.parse(text).error.message;
  } catch {
    // Not the server's own error: show the body.
  }
  if (response.status === 401) message += " Enter the API key in the settings.";
  return message || `The server answered with status ${response.status}.`;
}

async function loadModels() {
  try {
    const response = await fetch("v1/models", { headers: headers() });
    if (!response.ok) throw new Error(await errorOf(response));
    state.models = (await response.json()).data.map((model) => model.id);
    notice("models", "");
  } catch (error) {
    state.models = [];
    notice("models", `Cannot list the models: ${error.message}`);
  }
  const select = byId("model");
  select.replaceChildren(...state.models.map((id) => node("option", { value: id, textContent: id })));
  if (state.models.includes(state.settings.model)) select.value = state.settings.model;
}

function requestBody() {
  const { messages } = state.conversation;
  const { system, thinking } = state.settings;
  const body = { model: byId("model").value, stream: true, stream_options: { include_usage: true }, messages: [] };
  if (system) body.messages.push({ role: "system", content: system });
  for (const { role, content, error } of messages) {
    if (content || !error) body.messages.push({ role, content });
  }
  for (const name of SAMPLER) {
    if (state.settings[name] !== undefined) body[name] = state.settings[name];
  }
  if (thinking) body.chat_template_kwargs = { enable_thinking: thinking === "on" };
  return body;
}

// Yields the data of server-sent events.
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    buffer += value;
    const lines = buffer.split(/\r?\n/);
    buffer = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  }
}

function noteOf(message, started, timings, usage) {
  const parts = [];
  const generated = timings?.predicted_n ?? usage?.completion_tokens;
  const seconds = (performance.now() - started) / 1000;
  const rate = timings?.predicted_per_second ?? (generated && seconds ? generated / seconds : null);
  if (generated !== undefined) parts.push(`${generated} tokens`);
  if (rate) parts.push(`${rate.toFixed(1)} tokens/s`);
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  if (usage) parts.push(`prompt ${usage.prompt_tokens} tokens${cached ? `, ${cached} cached` : ""}`);
  if (message.finish === "length") parts.push("cut off at the token limit");
  if (message.finish === "stopped") parts.push("stopped");
  return parts.join(" · ");
}

async function answer() {
  const { conversation } = state;
  const message = { role: "assistant", content: "", reasoning: "", model: byId("model").value, isStreaming: true };
  const body = requestBody();
  conversation.messages.push(message);
  const abort = new AbortController();
  state.request = abort;
  byId("status").textContent = "Generating an answer.";
  showMessages();
  const article = byId("messages").lastElementChild;

  let isDue = false;
  const update = () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      if (!message.isStreaming || state.conversation !== conversation) return;
      const follow = isAtEnd();
      showAnswer(article, message);
      if (follow) scrollDown();
    });
  };

  const started = performance.now();
  let timings;
  let usage;
  try {
    const options = { method: "POST", headers: headers(), body: JSON.stringify(body), signal: abort.signal };
    const response = await fetch("v1/chat/completions", options);
    if (!response.ok) throw new Error(await errorOf(response));
    for await (const data of events(response.body)) {
      if (data.startsWith("[DONE]")) break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      timings = chunk.timings ?? timings;
      usage = chunk.usage ?? usage;
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      message.content += choice.delta?.content ?? "";
      message.reasoning += choice.delta?.reasoning_content ?? "";
      message.finish = choice.finish_reason ?? message.finish;
      update();
    }
    if (!message.finish) throw new Error("The connection ended before the answer did.");
  } catch (error) {
    if (abort.signal.aborted) message.finish = "stopped";
    else message.error = error.message;
  }
  message.isStreaming = false;
  message.note = noteOf(message, started, timings, usage);
  if (state.request === abort) state.request = null;
  // The user may have opened another conversation meanwhile.
  if (state.conversation === conversation) {
    const follow = isAtEnd();
    save();
    showAnswer(article, message);
    showButtons();
    if (follow) scrollDown();
    byId("status").textContent = message.error ?? `Answer: ${message.content}`;
  } else {
    storage.write(`conversation.${conversation.id}`, conversation);
  }
}

function send() {
  const input = byId("input");
  const content = input.value.trim();
  if (!content || state.request) return;
  input.value = "";
  const { conversation } = state;
  conversation.messages.push({ role: "user", content });
  conversation.title ||= content.split("\n", 1)[0].slice(0, 60);
  save();
  answer();
}

function regenerate() {
  if (state.request) return;
  const { messages } = state.conversation;
  while (messages.at(-1)?.role === "assistant") messages.pop();
  if (messages.length) answer();
}

function stop() {
  state.request?.abort();
}

// --- Settings ---

function showTheme() {
  const { theme } = state.settings;
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function openSettings() {
  const form = byId("settings-form").elements;
  for (const name of SAMPLER) form[name].value = state.settings[name] ?? "";
  for (const name of ["system", "thinking", "apiKey", "theme"]) form[name].value = state.settings[name] ?? "";
  byId("settings").showModal();
}

function saveSettings() {
  const form = byId("settings-form").elements;
  const settings = { model: byId("model").value };
  for (const name of SAMPLER) {
    if (form[name].value !== "") settings[name] = Number(form[name].value);
  }
  for (const name of ["system", "thinking", "apiKey", "theme"]) {
    if (form[name].value) settings[name] = form[name].value;
  }
  const hasNewKey = settings.apiKey !== state.settings.apiKey;
  state.settings = settings;
  storage.write("settings", settings);
  showTheme();
  if (hasNewKey) loadModels();
}

// --- Start ---

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
byId("input").addEventListener("keydown", (event) => {
  // An input method uses Enter to choose a character.
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !byId("settings").open) stop();
});
byId("stop").addEventListener("click", stop);
byId("new").addEventListener("click", () => open(null));
byId("toggle-sidebar").addEventListener("click", () => {
  const isOpen = document.body.classList.toggle("with-sidebar");
  byId("toggle-sidebar").setAttribute("aria-expanded", String(isOpen));
});
byId("open-settings").addEventListener("click", openSettings);
byId("settings").addEventListener("close", () => {
  if (byId("settings").returnValue === "save") saveSettings();
});
byId("model").addEventListener("change", () => {
  state.settings.model = byId("model").value;
  storage.write("settings", state.settings);
});
// What is there of an answer stays if the page is left.
window.addEventListener("pagehide", () => {
  if (state.request) storage.write(`conversation.${state.conversation.id}`, state.conversation);
});
// Another tab changed the list.
window.addEventListener("storage", (event) => {
  if (event.key !== `${PREFIX}conversations`) return;
  state.index = storage.read("conversations", []);
  showConversations();
});

showTheme();
open(storage.read("open", null));
loadModels();
