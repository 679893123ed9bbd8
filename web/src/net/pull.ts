// Downloads of models by the server.
import { post } from "./api";
import { pieces } from "./pieces";

/** A line of the answer to a download, in Ollama's form. */
export interface PullLine {
  status?: string;
  total?: number;
  completed?: number;
  error?: string | { message?: string };
}

/** Joins the pieces of a stream of lines of JSON. */
export class LineParser {
  private rest = "";

  /** Takes a piece and returns the values of the lines that it completes. */
  push(piece: string): PullLine[] {
    const lines = (this.rest + piece).split("\n");
    this.rest = lines.pop() ?? "";
    return lines.filter((line) => line.trim()).map((line) => JSON.parse(line) as PullLine);
  }
}

/** Downloads a model. `progress` gets each line; the end without an error is success. */
export async function pull(model: string, progress: (line: PullLine) => void): Promise<void> {
  const response = await post("api/pull", { model });
  if (!response.body) throw new Error("The answer has no content.");
  const parser = new LineParser();
  let isDone = false;
  const take = (piece: string): void => {
    for (const line of parser.push(piece)) {
      if (line.error) throw new Error(typeof line.error === "string" ? line.error : line.error.message);
      isDone ||= line.status === "success";
      progress(line);
    }
  };
  for await (const piece of pieces(response.body)) take(piece);
  take("\n");
  if (!isDone) throw new Error("The connection ended before the download.");
}
