import { requestFields } from "../params";
import type { Attachment, Conversation, Message } from "../conversation";

interface Part {
  type: string;
  text?: string;
  image_url?: { url: string };
  input_audio?: { data: string; format: string };
}

interface RequestMessage {
  role: string;
  content: string | Part[] | null;
  tool_calls?: { id: string; type: "function"; function: { name: string; arguments: string } }[];
  tool_call_id?: string;
}

export interface ChatRequest extends Record<string, unknown> {
  model: string;
  messages: RequestMessage[];
}

/**
 * The request for the next answer. With `continues` the last message is an answer to go on with.
 * `functions` are tools in addition to those of the conversation; an answer whose form is given has
 * no place for calls.
 */
export function chatRequest(
  conversation: Conversation,
  path: Message[],
  model: string,
  continues: boolean,
  functions: unknown[],
): ChatRequest {
  const messages = requestMessages(path);
  if (conversation.system?.trim()) messages.unshift({ role: "system", content: conversation.system });
  const fields = requestFields(conversation.params);
  const isFree = !fields.response_format && !fields.grammar;
  if (functions.length && isFree) fields.tools = [...(Array.isArray(fields.tools) ? fields.tools : []), ...functions];
  return {
    model,
    messages,
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
    ...(continues ? { continue_final_message: true, add_generation_prompt: false } : {}),
    ...fields,
  };
}

/**
 * Messages as the API takes them. Answers that failed before their first text are left out, and
 * questions that follow each other are joined, because many templates want the roles to alternate.
 * A call that a person passed over gets a result, because templates want one for each.
 */
export function requestMessages(path: Message[]): RequestMessage[] {
  const made: RequestMessage[] = [];
  let open: (string | undefined)[] = [];
  for (const message of path) {
    if (message.role !== "tool") {
      for (const id of open) made.push({ role: "tool", content: "There is no result.", tool_call_id: id });
      open = message.calls?.map(({ id }) => id) ?? [];
    }
    if (message.role === "assistant") {
      if (!message.content && !message.calls?.length) continue;
      const calls = message.calls?.map(({ id, name, arguments: text }) => ({
        id,
        type: "function" as const,
        function: { name, arguments: text },
      }));
      made.push({
        role: "assistant",
        content: message.content || null,
        ...(calls?.length ? { tool_calls: calls } : {}),
      });
    } else if (message.role === "tool") {
      made.push({ role: "tool", content: message.content, tool_call_id: message.callId });
      open = open.filter((id) => id !== message.callId);
    } else {
      const content = userContent(message);
      const last = made.at(-1);
      if (last?.role === "user") last.content = joined(last.content ?? "", content);
      else made.push({ role: "user", content });
    }
  }
  return made;
}

/** Files of text come before the message, each with its name. */
function userContent({ content, attachments = [] }: Message): string | Part[] {
  const files = attachments
    .filter(({ kind }) => kind === "text")
    .map(({ name, data }) => {
      const fence = "`".repeat(Math.max(3, ...[...data.matchAll(/`+/g)].map(([run]) => run.length + 1)));
      return `${name}:\n${fence}\n${data.replace(/\n$/, "")}\n${fence}\n`;
    });
  const text = [...files, content].filter(Boolean).join("\n");
  const parts = attachments.filter(({ kind }) => kind !== "text").map(mediaPart);
  if (!parts.length) return text;
  return text ? [...parts, { type: "text", text }] : parts;
}

function mediaPart({ kind, data }: Attachment): Part {
  if (kind === "image") return { type: "image_url", image_url: { url: data } };
  const format = /^data:audio\/(?:mpeg|mp3)/.test(data) ? "mp3" : "wav";
  return { type: "input_audio", input_audio: { data: data.slice(data.indexOf(",") + 1), format } };
}

function joined(first: string | Part[], second: string | Part[]): string | Part[] {
  if (typeof first === "string" && typeof second === "string") return `${first}\n\n${second}`;
  const parts = (content: string | Part[]): Part[] =>
    typeof content === "string" ? [{ type: "text", text: content }] : content;
  return [...parts(first), ...parts(second)];
}
