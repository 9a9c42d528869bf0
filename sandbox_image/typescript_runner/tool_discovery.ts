/** Search of the tools that this execution may call, by what they do. */

import { getContext } from "./run_context.ts";

/** A tool or a skill that was found. */
export interface FoundTool {
  readonly name: string;
  readonly server: string;
  readonly description?: string;
  readonly import?: string;
  readonly signature?: string;
  readonly input_schema?: Record<string, unknown>;
  readonly output_schema?: Record<string, unknown> | null;
}

/** What a search returns of each tool, and of how many. */
export interface SearchOptions {
  readonly detailLevel?: "name_only" | "with_description" | "full";
  readonly limit?: number;
}

/** Return the tools and skills that match the query, best first. An empty query lists all. */
export async function searchTools(query = "", options: SearchOptions = {}): Promise<FoundTool[]> {
  const { detailLevel = "with_description", limit = 20 } = options;
  const answer = await getContext().ask({ type: "search", query: String(query), detailLevel, limit });
  if (typeof answer.error === "string") throw new TypeError(answer.error);
  return answer.tools as FoundTool[];
}

/** Return tools by their names, SERVER.TOOL, with signatures and schemas. */
export async function describeTools(names: string | readonly string[]): Promise<FoundTool[]> {
  const wanted = typeof names === "string" ? [names] : [...names];
  const answer = await getContext().ask({ type: "search", names: wanted.map(String) });
  if (typeof answer.error === "string") throw new TypeError(answer.error);
  return answer.tools as FoundTool[];
}
