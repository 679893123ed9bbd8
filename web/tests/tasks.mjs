// What people do with the page, as tasks: [name, server, steps].
import content from "./tasks/content.mjs";
import conversations from "./tasks/conversations.mjs";
import failures from "./tasks/failures.mjs";
import messages from "./tasks/messages.mjs";
import page from "./tasks/page.mjs";
import parameters from "./tasks/parameters.mjs";
import tools from "./tasks/tools.mjs";

export const TASKS = [...messages, ...conversations, ...parameters, ...content, ...tools, ...failures, ...page];
