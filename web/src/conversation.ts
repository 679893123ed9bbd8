/** A file that a person added to a message. */
export interface Attachment {
  kind: "image" | "audio" | "text";
  name: string;
  /** A `data:` URL of an image or a sound, or the text of a file. */
  data: string;
}

/** A call of a tool that the model asks for. */
export interface Call {
  id: string;
  name: string;
  /** JSON as text, possibly cut off. */
  arguments: string;
}

export interface TokenChoice {
  token: string;
  logprob: number;
}

/** A token of an answer with its most probable alternatives. */
export interface ScoredToken extends TokenChoice {
  top: TokenChoice[];
}

export interface Stats {
  promptTokens?: number;
  cachedTokens?: number;
  tokens?: number;
  tokensPerSecond?: number;
  promptPerSecond?: number;
  firstTokenMs?: number;
}

export type MessageState = "streaming" | "done" | "stopped" | "length" | "error" | "interrupted";

/** A message. Its parent is the message before it; siblings are branches. */
export interface Message {
  id: string;
  conversation: string;
  parent: string | null;
  role: "user" | "assistant" | "tool";
  content: string;
  created: number;
  attachments?: Attachment[];
  reasoning?: string;
  reasoningMs?: number;
  calls?: Call[];
  /** The call that a tool's message answers. */
  callId?: string;
  model?: string;
  state?: MessageState;
  error?: string;
  stats?: Stats;
  logprobs?: ScoredToken[];
}

/** Values by the names of the request's fields; texts for those that a person writes as text. */
export type Params = Record<string, string | number | boolean>;

export interface Conversation {
  id: string;
  title: string;
  created: number;
  updated: number;
  pinned?: boolean;
  /** The last message of the branch that is shown. */
  head: string | null;
  system?: string;
  params: Params;
}

export interface ModelInfo {
  id: string;
  state: string;
  context: number;
  error?: string;
  sizeBytes?: number;
  /** False if the model cannot chat, as far as the server tells. */
  chats: boolean;
}
