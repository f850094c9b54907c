import { isListReader, listReader } from "../contracts/lists.js";
import { ListServiceService } from "../gen/avion/lists.js";
import { AppError } from "../kernel/errors.js";
import type { IdPage } from "../kernel/paging.js";
import { checkPage, type LeaveOut } from "./answers.js";
import { type createCallUpstream, isUnimplemented } from "./call.grpc.js";

interface FindRequest {
  readonly member: string;
  readonly owners?: readonly string[];
  readonly token: string;
  readonly size: number;
}

/** The reader of a list with another id would have the name of a user. */
const isListId = (id: string): boolean => isListReader(listReader(id));

export function listsOn(call: ReturnType<typeof createCallUpstream>["once"], leaveOut: LeaveOut) {
  const { findLists, getListReader } = ListServiceService;
  return {
    /** Reads one page of the lists with a member. A users service without lists has none. */
    findLists: async ({ member, owners = [], token, size }: FindRequest): Promise<IdPage> => {
      const request = { member_id: member, owner_ids: [...owners], page_size: size, page_token: token };
      const none = { list_ids: [], next_page_token: "" };
      const { list_ids: ids, next_page_token: next } = await call(findLists, request, { subject: member }).catch(
        (error: unknown) => {
          if (isUnimplemented(error)) return none;
          throw error;
        },
      );
      checkPage("FindLists", token, { length: ids.length, next });
      const lists = ids.filter(isListId);
      leaveOut("FindLists", member, ids.length - lists.length);
      return { ids: lists, next };
    },
    /**
     * An empty user asks about the list of anybody. The deadline is in ms since the epoch.
     *
     * @throws AppError `notfound` for an id that no list has; `isNotFound` tells that the user has no such list
     */
    listReader: async (user_id: string, list_id: string, deadline: number) => {
      if (!isListId(list_id)) throw new AppError("notfound", "list_id: is no id of a list");
      return call(getListReader, { user_id, list_id }, { subject: user_id || list_id, deadline });
    },
  };
}
