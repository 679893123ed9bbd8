// What people do with the page, as tasks: [name, server, steps].
import content from "./tasks/content.mjs";
import conversations from "./tasks/conversations.mjs";
import failures from "./tasks/failures.mjs";
import messages from "./tasks/messages.mjs";
import page from "./tasks/page.mjs";
import parameters from "./tasks/parameters.mjs";
import tools from "./tasks/tools.mjs";
import { PERSON } from "./person.mjs";

export const TASKS = [...messages, ...conversations, ...parameters, ...content, ...tools, ...failures, ...page];

const listed = PERSON.flatMap(([, names]) => names).sort();
const known = TASKS.map(([name]) => name).sort();
const odd = [...listed.filter((name) => !known.includes(name)), ...known.filter((name) => !listed.includes(name))];
if (odd.length) throw new Error(`the list of a person's tasks does not fit the scripts: ${odd.join(", ")}`);
