// What `--help` says below the options: rules and examples.
// Texts only.
import { DEFAULT_ADDRESS } from "../client/connect.ts";

/** `ateenv --help` */
export const EXAMPLES = `
Without --address and ATEENV_ADDRESS the agent is at ${DEFAULT_ADDRESS}.

Examples:
  ateenv run -- sh -c 'echo hi; exit 3'
  ateenv cp ./repo :repo
  ateenv cp :repo/build/report.html .
  id=$(ateenv start -- make test); ateenv logs -f $id; ateenv wait $id

Exit codes: those of the command for run and wait; 124 timeout, 125 failure of
ateenv itself, 130 Ctrl-C.`;

/** `ateenv run --help` */
export const RUN_HELP = `
Ctrl-C kills the command with all of its descendants; a second one leaves it
running. Standard input and a terminal are not passed on: put a file first. With
--json the output is still the command's own; only failures of ateenv are JSON.

Examples:
  ateenv run -- python3 -c 'print(6 * 7)'
  ateenv run -w repo -e CI=1 --timeout 5m -- make test
  ateenv run -- sh -c 'ls | wc -l'
  ateenv put - :in; ateenv run -- sh -c 'sort <in'`;

/** `ateenv start --help` */
export const START_HELP = `
Keep the id: the agent has no call that lists processes.

Example:
  id=$(ateenv start -- make -j4); ateenv logs -f $id`;

/** `ateenv status --help` */
export const STATUS_HELP = `
The agent tells state, exit code and times, not the command.

Example:
  ateenv status --json $id | jq -r .status`;

/** `ateenv cp --help` */
export const COPY_HELP = `
Like cp -r: into an existing directory ./repo goes as repo/repo; ./repo/. copies
the contents into it. Permission bits are kept. Directories need tar and stat in
the sandbox. Copied files replace others whole or not at all. A download with a
link that leads out of its directory fails, unless an option says what to do.

Examples:
  ateenv cp ./repo :repo
  ateenv cp ./repo/. :repo
  ateenv cp :repo/dist ./dist
  ateenv cp ./model.bin :models/`;
