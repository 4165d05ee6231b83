// What a service is to the server: its name, its methods, and when it takes calls.
// Must not import a service.
import type { UntypedServiceImplementation } from "@grpc/grpc-js";

/** One service. */
export interface ServiceEntry {
  /** Full name: `package.Service`. */
  readonly name: string;
  /** Its grpc-js definition (wire/definitions.ts). */
  readonly definition: object;
  readonly implementation: UntypedServiceImplementation;
  /** Its calls are new work: none is let in any more once the agent drains. Those under way go on. */
  readonly isRefusedInDrain?: boolean;
}

/** Paths of its methods: `/package.Service/Method`. */
export function pathsOf({ definition }: Pick<ServiceEntry, "definition">): string[] {
  return Object.values(definition).map(({ path }: { path: string }) => path);
}
