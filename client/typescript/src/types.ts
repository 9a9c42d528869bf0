/** Short names for types of the gateway's API. */
import type { components } from "./schema.ts";

/** A response has all fields, although the schema does not require those with a default. */
export type Whole<T> = T extends readonly (infer Item)[] ? Whole<Item>[]
  : T extends object ? { [Name in keyof T]-?: Whole<T[Name]> }
  : T;
/** A request needs no field with a default, although the schema gives each a value. */
export type Loose<T> = T extends readonly (infer Item)[] ? Loose<Item>[]
  : T extends object ? { [Name in keyof T]?: Loose<T[Name]> }
  : T;
/** Events leave out the fields that do not apply. */
type Sparse<T> = T extends object ?
    & { [Name in keyof T as null extends T[Name] ? never : Name]: T[Name] }
    & {
      [Name in keyof T as null extends T[Name] ? Name : never]?: T[Name];
    }
  : never;

type Schemas = components["schemas"];
export type Approval = Whole<Schemas["Approval"]>;
export type CommitResult = Whole<Schemas["CommitResult"]>;
export type Event = Sparse<Schemas["Event"]>;
export type Execution = Whole<Schemas["Execution"]>;
export type ExecutionSummary = Whole<Schemas["ExecutionSummary"]>;
export type FieldError = Schemas["FieldError"];
export type NamespaceStats = Whole<Schemas["NamespaceStats"]>;
export type NewSession = Loose<Schemas["NewSession"]>;
export type Session = Whole<Schemas["Session"]>;
export type Skill = Whole<Schemas["Skill"]>;
export type WorkspaceFile = Whole<Schemas["WorkspaceFile"]>;

/** One execution, as it was at the time of the response, with its output in short form. */
export interface Run extends Execution {
  readonly stdout: string;
  readonly stderr: string;
  /** The value that the code returned. JavaScript reads integers beyond 2**53 inexactly: return them as text. */
  readonly result: unknown;
  /** Whether the phase is final. */
  readonly finished: boolean;
  /** Whether the code ran to its end. */
  readonly succeeded: boolean;
}
