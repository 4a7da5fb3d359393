package lockhttp

// Action is what a request wants to do: the word that authorizers and logs get.
type Action string

// The actions of [API].
const (
	ActionAcquire Action = "acquire"
	ActionGet     Action = "get"
	ActionRenew   Action = "renew"
	ActionRelease Action = "release"
	ActionWaiters Action = "waiters"
	ActionHolders Action = "holders"
)

// The actions of [Admin]. They have words of their own, so that an authorizer shared by both mounts cannot open the
// admin routes by allowing a "get".
const (
	ActionList         Action = "list"
	ActionInspect      Action = "inspect"
	ActionListWaiters  Action = "list_waiters"
	ActionListHolders  Action = "list_holders"
	ActionForceRelease Action = "force_release"
)
