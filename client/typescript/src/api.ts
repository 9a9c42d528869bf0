/** Requests of the operations of the API, with the types of their parameters, bodies and responses. */
import { fillPath } from "./checks.ts";
import { UnexpectedResponse } from "./errors.ts";
import type { operations } from "./schema.ts";
import { type CallOptions, type ClientOptions, type Reply, type SendOptions, Transport } from "./transport.ts";
import type { Loose, Whole } from "./types.ts";

type Id = keyof operations;
type Json<T> = T extends { content: { "application/json": infer Body } } ? Body : undefined;
type Parameters<O extends Id, Place extends "query" | "header"> = NonNullable<operations[O]["parameters"][Place]>;
/** What an operation answers with. */
export type Answer<O extends Id> = Whole<Json<operations[O]["responses"][keyof operations[O]["responses"] & Success]>>;
type Success = 200 | 201 | 202 | 204;
/** What the request of an operation has in addition to the names in its path. */
export interface Given<O extends Id> extends CallOptions {
  query?: Parameters<O, "query"> | undefined;
  headers?: Parameters<O, "header"> & Record<string, string>;
  /** Only the fields that differ from their defaults are needed. */
  body?: operations[O] extends { requestBody: infer Body } ? Loose<Json<Body>> : never;
  /** Whether it may be sent again although the gateway may have acted on it; by default, unless it is a POST. */
  repeatable?: boolean;
  /** Wait that the request asks for. */
  waitSeconds?: number;
}
/** Names in a path by their parameters. */
export type Names = Readonly<Record<string, string | number>>;

/** The API of one gateway. */
export class Api {
  readonly transport: Transport;

  /** Create a client; nothing is sent yet. `url` defaults to $MCP_EXEC_GATEWAY. */
  constructor(url?: string, options: ClientOptions = {}) {
    this.transport = new Transport(url, options);
  }

  /** Send a request and return its answer. Throws GatewayError, GatewayUnreachable and UnexpectedResponse. */
  protected async request<O extends Id>(
    method: string,
    path: string,
    names: Names,
    options: Given<O>,
  ): Promise<Answer<O>> {
    const isRepeatable = { repeatable: method !== "POST" };
    return parseJson(await this.send(method, path, names, { ...isRepeatable, ...(options as SendOptions) }));
  }

  /** Send a request with any body and response. */
  protected send(method: string, path: string, names: Names, options: SendOptions = {}): Promise<Reply> {
    return this.transport.send(method, fillPath(path, names), options);
  }
}

/** Parse a response's body. Throws UnexpectedResponse if it is not JSON. */
export function parseJson<T>({ bytes, address, status }: Reply): T {
  try {
    return (status === 204 ? undefined : JSON.parse(new TextDecoder().decode(bytes))) as T;
  } catch (error) {
    throw new UnexpectedResponse(`${address}: the response is not JSON; is this a gateway?`, { cause: error });
  }
}
