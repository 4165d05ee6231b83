// What Deno's permission audit says of a run, held against the flags that the run was given.
// The audit (DENO_AUDIT_PERMISSIONS=FILE, one JSON object a line) names each request, granted or not, and
// nothing of `run`: whether one was denied follows from the flags.

/** One request for a permission. */
export interface AuditEntry {
  readonly permission: string;
  readonly value: string;
}

/** Permission -> values of its flag; `[]` for a flag without values (everything). */
export type Grants = ReadonlyMap<string, readonly string[]>;

/** The flags of `deno run`, from a process's arguments. */
export function parseGrants(args: readonly string[]): Grants {
  const grants = new Map<string, readonly string[]>();
  for (const arg of args) {
    const match = /^--allow-([a-z]+)(?:=(.*))?$/.exec(arg);
    if (match !== null) grants.set(match[1]!, match[2]?.split(",") ?? []);
  }
  return grants;
}

/** The requests of a run, in their order. */
export function parseAudit(text: string): AuditEntry[] {
  return text.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));
}

function covers(permission: string, scope: string, value: string): boolean {
  switch (permission) {
    case "read":
    case "write":
      return value === scope || value.startsWith(`${scope.replace(/\/$/, "")}/`);
    case "env":
      return scope.endsWith("*") ? value.startsWith(scope.slice(0, -1)) : value === scope;
    default:
      return value === scope;
  }
}

/** Requests that no flag covers. */
export function deniedRequests(audit: readonly AuditEntry[], grants: Grants): string[] {
  const denied = audit.filter(({ permission, value }) => {
    const scopes = grants.get(permission);
    if (scopes === undefined) return true;
    return scopes.length > 0 && !scopes.some((scope) => covers(permission, scope, value));
  });
  // After the address was bound, what was needed only to start is given up.
  const bound = audit.findLastIndex(({ permission }) => permission === "net");
  const late = audit.slice(bound + 1).filter(({ permission }) =>
    !["read", "write", "run"].includes(permission)
  );
  return [...denied, ...late].map(({ permission, value }) => `${permission} ${value}`);
}

/** Granted scopes that no request was made under. */
export function unusedScopes(audit: readonly AuditEntry[], grants: Grants): string[] {
  const unused: string[] = [];
  for (const [permission, scopes] of grants) {
    // The audit is silent about programs: that they are needed shows in what the agent does.
    if (permission === "run") continue;
    const values = audit.filter((entry) => entry.permission === permission);
    for (const scope of scopes) {
      if (!values.some(({ value }) => covers(permission, scope, value))) {
        unused.push(`${permission} ${scope}`);
      }
    }
    if (scopes.length === 0 && values.length === 0) unused.push(permission);
  }
  return unused;
}
