// Twenty tasks of a person, from what people do with Open WebUI and the page of llama-server, and the
// scripts that do each of them.
export const PERSON = [
  [
    "open the page and see which model answers",
    ["open the page and see which model answers", "begin with a suggestion"],
  ],
  [
    "ask, watch the answer and its speed",
    ["ask and read the answer with its speed", "write a message of several lines", "watch a long prompt being read"],
  ],
  [
    "stop an answer and continue it",
    ["stop an answer and continue it", "find an answer that the browser ended, and continue it"],
  ],
  [
    "correct a question or an answer, and go back",
    [
      "edit a question, which makes a branch, and go back",
      "edit the last question with the arrow key",
      "correct an answer",
      "delete a message",
    ],
  ],
  ["compute an answer again and compare", ["compute an answer again and compare"]],
  ["find a conversation among many", ["rename, pin, search and delete conversations"]],
  [
    "take conversations to another browser",
    [
      "export conversations, lose them, and import them",
      "export a conversation as Markdown, and import it",
      "find the conversations of the earlier page",
    ],
  ],
  [
    "work in several conversations and tabs",
    [
      "look at another conversation while an answer goes on",
      "stop the answer of another conversation",
      "reload during an answer, which goes on",
      "write in one conversation from two tabs",
    ],
  ],
  [
    "read tables, formulas and code, and copy them",
    ["read tables, formulas, code and boxes", "read from right to left"],
  ],
  ["ask about a file of text", ["ask about a file of text"]],
  [
    "ask about a PDF file",
    [
      "ask about a PDF file: picker, paste and drop",
      "see why a PDF file cannot be read, and show a scanned one to a model that sees",
    ],
  ],
  ["show a picture, play a sound", ["show images and a sound to a model that takes them: picker, paste and drop"]],
  [
    "set a system prompt and the sampling",
    [
      "set a system prompt and parameters for one conversation",
      "use defaults for new conversations",
      "see what the server refuses",
    ],
  ],
  [
    "get an answer of a given form",
    ["get JSON that fits a schema, after a mistake in it", "get an answer that fits a grammar"],
  ],
  ["follow the reasoning and the probabilities", ["read the reasoning", "see the probabilities of the tokens"]],
  [
    "let the model use tools",
    [
      "let the model use a tool of an MCP server",
      "refuse a call, and let a tool run unasked",
      "leave a conversation while its tool runs",
      "see what is wrong with a server of tools",
      "give the result of a tool",
    ],
  ],
  ["choose, load and download models", ["choose, load and unload models", "download a model", "enter a key"]],
  ["watch the server", ["look at the server"]],
  [
    "use a phone, the keys, a screen reader, the dark",
    ["use a phone", "use the keys", "hear the answer sentence by sentence", "choose the dark theme, and keep it"],
  ],
  [
    "go on when something fails",
    [
      "go on when the server is gone and back",
      "wait for a busy server",
      "keep the text of a broken stream",
      "survive 3,000 quotation marks and a megabyte of text",
      "watch a paragraph of 100 KB stream",
      "go on when the storage is full",
    ],
  ],
];
